"""What the adapters of harnesses with threads have in common: how a run starts, fails, is cut short and reported."""
