"""Scheduling middleware that makes a batch of LLM agent tasks finish sooner."""

from coresched.batch.records import TransitionError
from coresched.capacity.footprint import footprint
from coresched.capacity.planner import plan
from coresched.capacity.summary import WorkloadSummary
from coresched.client.connect import connect
from coresched.client.embedded import Batch
from coresched.client.errors import (
    BatchClosedError,
    LeaseExpiredError,
    SampleEndedError,
    SampleTakenError,
    ServiceError,
    ServiceLimitError,
    SessionLostError,
)
from coresched.client.label import label
from coresched.core import ChainAdvancingQueue, LoadBoundedRouter, RoutingPrefixPolicy, Waiting
from coresched.recording.writer import RecordingError

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchClosedError",
    "ChainAdvancingQueue",
    "LeaseExpiredError",
    "LoadBoundedRouter",
    "RecordingError",
    "RoutingPrefixPolicy",
    "SampleEndedError",
    "SampleTakenError",
    "ServiceError",
    "ServiceLimitError",
    "SessionLostError",
    "TransitionError",
    "Waiting",
    "WorkloadSummary",
    "__version__",
    "connect",
    "footprint",
    "label",
    "plan",
]
