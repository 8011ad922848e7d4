"""vLLM servers of a tiny model on this machine, for the demo, the benches and the tests."""
