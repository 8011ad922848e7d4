"""vLLM's waiting orders side by side: its real scheduler with made-up outputs, and whole tiny models."""
