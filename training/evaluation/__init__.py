"""The parts of an evaluation: captions and their sources, what metrics are given, intervals and tests."""
