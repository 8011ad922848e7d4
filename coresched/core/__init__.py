"""The scheduling core: compiled, without I/O and without a clock of its own."""
