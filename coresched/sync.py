"""The blocking twin of `coresched.Batch`: the same words without async and await, for threads."""

from coresched.client.blocking import Batch

__all__ = ["Batch"]
