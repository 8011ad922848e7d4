"""What harnesses, transports and gateways write down of a run, and how it becomes one account of it."""
