"""What inspect loads by its entry points; nothing happens unless the environment asks for a gate."""

from __future__ import annotations

from coresched_inspect.activation import asked_for

if asked_for():
    from coresched_inspect.hooks import register

    register()
