"""A worker of the simulator behind an engine's HTTP endpoints, against the wall clock."""
