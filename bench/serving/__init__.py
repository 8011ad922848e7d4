"""Server processes, the client that loads them, and what a turn of it measures."""
