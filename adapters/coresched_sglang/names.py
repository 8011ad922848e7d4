"""The names that `--schedule-policy` takes beside SGLang's own."""

ROUTING_PREFIX = "routing-prefix"
ROUTING_RESIDENCY = "routing-residency"

POLICIES = (ROUTING_PREFIX, ROUTING_RESIDENCY)
