"""What a running engine, or its boot log, says about its pools, and what is off about them."""

from coresched.capacity.observed.boot_log import observe_log
from coresched.capacity.observed.endpoint import observe_engine
from coresched.capacity.observed.findings import Finding, examine
from coresched.capacity.observed.pools import ObservedPools

__all__ = ["Finding", "ObservedPools", "examine", "observe_engine", "observe_log"]
