"""Captioning of folders: pictures streamed from wherever they are named, decoded, captioned and written for good."""
