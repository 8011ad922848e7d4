"""Controlled replay: recorded trajectories against live endpoints, turn by turn and token by token."""
