"""What processes of Ray's interpreter, which has an environment of its own, get from here."""

from bench import sglang_python


def environment() -> dict[str, str]:
    """Variables: this checkout's code first; no usage statistics."""
    return {**sglang_python.environment(), "RAY_USAGE_STATS_ENABLED": "0"}
