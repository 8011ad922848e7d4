"""Routers of other projects, and one of our own, as policies of the simulator: one small file each."""
