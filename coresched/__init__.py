"""Scheduling middleware that makes a batch of LLM agent tasks finish sooner."""

__version__ = "0.1.0"
