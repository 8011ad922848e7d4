"""Orders of the environment queue, other projects' and oracles: each a small file with its rule and its source."""
