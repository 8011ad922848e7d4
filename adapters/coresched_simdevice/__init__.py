"""A simulated device for the real SGLang server: its own scheduler, caches and pools, without weights and GPU."""
