"""The simulator, compiled: the modules mirror those of the plain-Python twin, and every metric is equal."""
