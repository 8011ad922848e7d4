"""What a harness imports: one interface, asynchronous and blocking."""
