"""A batch on two real servers of an engine, as it comes and coordinated."""
