"""The blocking twins of `coresched.Batch` and `coresched.connect`: the same words for threads."""

from coresched.client.blocking import Batch
from coresched.client.connect import connect_blocking as connect

__all__ = ["Batch", "connect"]
