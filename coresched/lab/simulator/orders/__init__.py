"""Orders of other projects inside a worker, as policies of the simulator: one small file each."""
