"""What engines in virtual time share: the simulated device, its time, and the tokens of trajectories."""
