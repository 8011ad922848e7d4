"""Other projects' ways to admit: orders of a whole batch, and gates before each turn; a small file each."""
