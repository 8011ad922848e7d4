"""Recordings of agent harnesses and serving systems, read into the trace schema."""
