"""inspect-ai under coresched: evals gated by environment variables (docs/inspect.md) or `enable`."""

from coresched_inspect.activation import disable, enable

__all__ = ["disable", "enable"]
