"""A batch on two real SGLang servers with a simulated device, as it comes and coordinated."""
