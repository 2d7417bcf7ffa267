"""Tests of the captioning of folders."""
