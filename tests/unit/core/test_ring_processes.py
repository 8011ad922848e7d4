"""The same labels meet the same workers in another process, and also where points share a position."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mmh3
import pytest

import coresched
from coresched.core import LoadBoundedRouter

ROOT = str(Path(coresched.__file__).parents[1])

ROUTES = """
import json
from coresched.core import LoadBoundedRouter
router = LoadBoundedRouter({"w0", "w1", "w2", "gpu-ü"})
print(json.dumps([router.route(f"traj-{i % 97}") for i in range(500)]))
"""

# Stands in for mmh3 with eight positions only for the points (seed 0), so that workers share them.
COARSE_HASH = """
import zlib
from importlib.util import module_from_spec, spec_from_file_location
real_spec = spec_from_file_location("mmh3", {real!r})
real = module_from_spec(real_spec)
real_spec.loader.exec_module(real)
def hash64(key, seed=0, x64arch=True, signed=True):
    if seed == 1:
        return real.hash64(key, seed=1, x64arch=True, signed=signed)
    position = (zlib.crc32(key.encode()) % 8) << 61
    return position - (position >= 1 << 63 and signed) * (1 << 64), 0
"""

TIES = """
import itertools, json
from coresched.core import LoadBoundedRouter
from coresched.core.reference import ReferenceRouter
def homes(router):
    return [router.home(f"traj-{i}") for i in range(64)]
names = ["b", "a", "d", "c"]
found = [homes(ReferenceRouter(names, virtual_nodes=6))]
for order in itertools.permutations(names):
    found.append(homes(LoadBoundedRouter(order, virtual_nodes=6)))
    router = LoadBoundedRouter(["0", *order], virtual_nodes=6)
    router.remove_worker("0")
    router.remove_worker("a")
    router.add_worker("a")
    found.append(homes(router))
    router = LoadBoundedRouter((), virtual_nodes=6)
    for name in order:
        router.add_worker(name)
        last = homes(router)
    found.append(last)
print(json.dumps(found))
"""


def run(script: str, **environment: str) -> object:
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(finished.stdout)


@pytest.mark.parametrize("hash_seed", ["0", "1", "4294967295"])
def test_another_hash_seed_changes_no_route(hash_seed: str) -> None:
    router = LoadBoundedRouter(["w0", "w1", "w2", "gpu-ü"])
    here = [router.route(f"traj-{i % 97}") for i in range(500)]
    assert len(set(here)) == 4
    assert run(ROUTES, PYTHONPATH=ROOT, PYTHONHASHSEED=hash_seed, PYTHONIOENCODING="utf-8") == here


def test_points_at_one_position_are_in_order_of_the_name(tmp_path: Path) -> None:
    (tmp_path / "mmh3.py").write_text(COARSE_HASH.format(real=mmh3.__file__))
    found = run(TIES, PYTHONPATH=os.pathsep.join([str(tmp_path), ROOT]))
    assert isinstance(found, list)
    assert len(found) == 1 + 3 * 24
    assert all(homes == found[0] for homes in found)
    assert len(set(found[0])) > 1
