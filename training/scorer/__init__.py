"""Training of the bundled scorer: a strong teacher on MiniLM's text layers, distilled into open_clip's small text tower."""
