"""Orders of the environment queue, other projects' and oracles: a small file each, with rule and source."""
