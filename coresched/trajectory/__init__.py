"""Recorded and generated agent trajectories: the schema, reading, writing, generating, profiling."""
