"""A live view of a running service in the terminal."""
