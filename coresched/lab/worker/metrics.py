"""The worker's state as Prometheus text."""

from coresched.lab.worker.engine import LiveEngine


def metrics_text(engine: LiveEngine) -> str:
    """Gauges and counters named ``coresched_worker_...``; their seconds are virtual."""
    load, counters = engine.load(), engine.counters
    lines: list[str] = []
    for kind, name, meaning, value in (
        ("gauge", "running_requests", "Requests admitted and not ended.", load.running),
        ("gauge", "waiting_requests", "Requests in the waiting queue.", load.waiting),
        ("gauge", "cached_entries", "Idle cache entries, one for each trajectory.", load.cached_entries),
        ("gauge", "kv_pool_use", "Share of the KV pages held, also by idle entries.", load.kv_pool_use),
        (
            "gauge",
            "kv_pool_running",
            "Share of the KV pages that running requests will need at their ends.",
            load.kv_pool_running,
        ),
        ("gauge", "state_pool_use", "Share of the state slots held, also idle.", load.state_pool_use),
        ("counter", "evictions_total", "Cache entries evicted.", load.evictions),
        ("counter", "requests_total", "Requests answered.", counters.finished),
        ("counter", "aborted_requests_total", "Requests whose client left.", counters.aborted),
        ("counter", "input_tokens_total", "Prompt tokens, cached ones too.", counters.input_tokens),
        ("counter", "cached_tokens_total", "Prompt tokens found in the cache.", counters.cached_tokens),
        ("counter", "output_tokens_total", "Reply tokens of answered requests.", counters.output_tokens),
        ("counter", "first_tokens_total", "Requests that had their first token.", counters.started),
        ("counter", "first_token_seconds_total", "Arrival to first token.", counters.first_token_s),
        ("counter", "request_seconds_total", "Arrival to end of answered requests.", counters.duration_s),
        ("counter", "busy_seconds_total", "Time in prefill batches and decode runs.", engine.worker.busy_s),
        ("counter", "priority_seconds_total", "Ordering the waiting queue.", engine.worker.priority_s),
    ):
        full = f"coresched_worker_{name}"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {value!r}"]
    return "\n".join(lines) + "\n"
