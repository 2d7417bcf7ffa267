"""Decoding by plain functions over packed weights, for decoders whose modules transformers runs one by one."""
