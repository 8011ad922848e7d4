"""Scheduling middleware that makes a batch of LLM agent tasks finish sooner."""

from coresched.capacity.footprint import footprint
from coresched.capacity.planner import plan
from coresched.capacity.summary import WorkloadSummary
from coresched.client.embedded import Batch
from coresched.client.label import label
from coresched.core import ChainAdvancingQueue, LoadBoundedRouter, RoutingPrefixPolicy, Waiting

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "ChainAdvancingQueue",
    "LoadBoundedRouter",
    "RoutingPrefixPolicy",
    "Waiting",
    "WorkloadSummary",
    "__version__",
    "footprint",
    "label",
    "plan",
]
