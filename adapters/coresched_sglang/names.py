"""The names that `--schedule-policy` takes beside SGLang's own."""

ROUTING_PREFIX = "routing-prefix"

POLICIES = (ROUTING_PREFIX,)
