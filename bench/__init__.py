"""What scheduling costs: the compiled core, the simulator and the gateway, measured beside their peers."""
