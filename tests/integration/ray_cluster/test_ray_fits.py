"""The Ray that is tested has what the request router enters, and `coresched doctor` sees it."""

import json
import subprocess
from typing import Any

import pytest
from integration.ray_cluster.environment import RAY, RAY_VERSION

pytestmark = pytest.mark.ray


def answer(*arguments: str) -> str:
    done = subprocess.run([RAY.python(), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_doctor_finds_that_the_adapter_fits() -> None:
    parts: list[dict[str, Any]] = json.loads(answer("-m", "coresched", "doctor", "--json"))["installed"]
    (ray,) = (part for part in parts if part["name"] == "ray")
    assert (ray["version"], ray["broken"]) == (RAY_VERSION, False)
    assert ray["note"] == "its adapter fits; this release is tested"


REPLACED = """
from ray.serve.request_router import RequestRouter
from coresched_ray.compatibility import FIT

del RequestRouter._choose_replica_for_request
RequestRouter.update_replicas = lambda self: None
print(*FIT.missing(), sep="\\n")
"""


def test_a_ray_without_a_place_is_told_of() -> None:
    router = "ray.serve.request_router.RequestRouter"
    assert answer("-c", REPLACED).splitlines() == [
        f"{router}.update_replicas takes (self), not (self, replicas, ...)",
        f"{router}._choose_replica_for_request does not exist",
    ]
