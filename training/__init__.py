"""Fine-tuning of captioners with published objectives, and their evaluation."""
