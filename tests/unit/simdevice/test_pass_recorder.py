"""Which policies' passes can be recorded."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_simdevice.virtual.passes import PassRecorder

from coresched.errors import InputError


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("fcfs", SimpleNamespace()),
        ("routing-residency", SimpleNamespace(ordering=object())),
        ("routing-prefix", SimpleNamespace(ordering=None)),  # the prefix cache is off
    ],
)
def test_only_routing_prefix_has_passes_to_record(name: str, policy: Any) -> None:
    engine: Any = SimpleNamespace(scheduler=SimpleNamespace(schedule_policy=name, policy=policy))
    with pytest.raises(InputError, match=f"schedule_policy is '{name}'; only routing-prefix's"):
        PassRecorder(engine, lambda one: None)
