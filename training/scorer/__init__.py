"""Training of the bundled scorer: a teacher on MiniLM's text layers, distilled into open_clip's small text tower."""
