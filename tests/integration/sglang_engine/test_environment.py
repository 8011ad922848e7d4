"""The interpreter that these tests run the engine with."""

import json
import subprocess
from pathlib import Path

import pytest
from integration.sglang_engine.environment import CHECKOUT, ENGINE_VERSION, OFFLINE

from coresched.capacity.sglang import ENGINE_VERSION as PRICED

pytestmark = pytest.mark.sglang

LOOK = """
import json, os
from importlib.metadata import entry_points, version
import coresched.core.prefix, sglang
points = {group: sorted(point.value for point in entry_points(group=group) if point.dist.name == "coresched")
    for group in ("sglang.srt.plugins", "sglang.srt.platforms")}
print(json.dumps([version("sglang"), coresched.core.prefix.__file__, points]))
"""


def test_it_has_the_engine_and_this_checkout_with_its_entry_points(sglang_python: Path) -> None:
    done = subprocess.run(
        [sglang_python, "-c", LOOK], capture_output=True, text=True, cwd="/", env=OFFLINE, check=True
    )
    version, core, points = json.loads(done.stdout.splitlines()[-1])
    assert version == ENGINE_VERSION == PRICED
    assert Path(core).is_relative_to(CHECKOUT)
    declared = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    for group, values in points.items():
        assert values, group
        assert all(f'= "{value}"\n' in declared for value in values)
