"""What scheduling costs: the compiled core and the simulator, timed beside their peers."""
