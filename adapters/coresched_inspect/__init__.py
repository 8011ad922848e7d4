"""inspect-ai under coresched: any eval gated as it is, by environment variables (docs/inspect.md) or `enable`."""

from coresched_inspect.activation import disable, enable

__all__ = ["disable", "enable"]
