"""A/B experiments: who gets which arm, what came of it, and what can be concluded from it."""
