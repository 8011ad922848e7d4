"""A simulated device for the real SGLang server: its scheduler and caches, without weights and GPU."""
