"""Routing-prefix scheduling as a service: the waiting queues of engines that cannot load the policy."""
