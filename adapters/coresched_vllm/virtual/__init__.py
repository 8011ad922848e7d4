"""vLLM's own scheduler and block pool in this process, with made-up outputs in place of a model."""
