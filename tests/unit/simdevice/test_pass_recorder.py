"""Which policies' passes can be recorded."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_simdevice.virtual.recording import pass_recorder

from coresched.errors import InputError


@pytest.mark.parametrize(
    ("name", "policy", "is_said"),
    [
        ("fcfs", SimpleNamespace(), "'fcfs'; only the passes of routing-prefix and routing-residency are"),
        ("routing-prefix", SimpleNamespace(ordering=None), "'routing-prefix' without a prefix cache; only"),
    ],
)
def test_only_our_policies_have_passes_to_record(name: str, policy: Any, is_said: str) -> None:
    engine: Any = SimpleNamespace(scheduler=SimpleNamespace(schedule_policy=name, policy=policy))
    with pytest.raises(InputError, match=f"schedule_policy is {is_said}"):
        pass_recorder(engine, lambda one: None)
