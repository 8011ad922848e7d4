"""The counts of an engine's scheduler, from its process to the one that serves /metrics."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_vllm import metrics
from coresched_vllm.counts import VllmPrefixCounts, VllmResidencyCounts
from coresched_vllm.metrics import SharedCounts, SharedCountsCollector, publisher_of, serve_counts
from prometheus_client import CollectorRegistry, generate_latest

COMMON = {
    "passes": 9,
    "changes": 7,
    "seconds": 0.5,
    "hits": 6,
    "misses": 5,
    "unlabelled": 4,
    "refused_labels": 3,
    "states_demoted": 2,
    "resumed": 1,
}
SOME = VllmPrefixCounts(**COMMON, queries=8)
NONE = VllmPrefixCounts(**dict.fromkeys(COMMON, 0), queries=0)


def config(engine: int = 0) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(served_model_name="m"),
        parallel_config=SimpleNamespace(data_parallel_index=engine),
    )


def scraped(folder: Path) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(SharedCountsCollector(folder))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_what_engines_publish_is_scraped_under_their_labels(tmp_path: Path) -> None:
    folder = tmp_path / "made by an engine"
    assert scraped(folder) == {}
    first, second = (SharedCounts(folder, ("m", engine), VllmPrefixCounts) for engine in "01")
    assert set(scraped(folder).values()) == {0.0}
    first.publish(SOME)
    second.publish(replace(SOME, passes=1 << 40))
    found = scraped(folder)
    own = 'model_name="m"'
    assert found[f'coresched_prefix_passes_total{{engine="0",{own}}}'] == 9
    assert found[f'coresched_prefix_passes_total{{engine="1",{own}}}'] == 1 << 40
    assert found[f'coresched_prefix_queries_total{{engine="0",{own}}}'] == 8
    assert found[f'coresched_prefix_order_changes_total{{engine="0",{own}}}'] == 7
    assert found[f'coresched_prefix_seconds_total{{engine="0",{own}}}'] == 0.5
    assert found[f'coresched_prefix_refused_labels_total{{engine="0",{own}}}'] == 3
    admitted = [found[f'coresched_prefix_admitted_total{{engine="0",label="{by}",{own}}}'] for by in BY]
    assert admitted == [6, 5, 4]


BY = ("hit", "miss", "none")


def test_each_policy_has_its_own_counters(tmp_path: Path) -> None:
    SharedCounts(tmp_path, ("m", "0"), VllmPrefixCounts).publish(SOME)
    residency = VllmResidencyCounts(**COMMON, lost=11, held_back=12, moved_back=13)
    SharedCounts(tmp_path, ("m", "1"), VllmResidencyCounts).publish(residency)
    found = scraped(tmp_path)
    own = '{engine="1",model_name="m"}'
    names = ("lost", "held_back", "moved_back", "states_demoted", "resumed")
    assert [found[f"coresched_residency_{name}_total{own}"] for name in names] == [11, 12, 13, 2, 1]
    assert found['coresched_prefix_states_demoted_total{engine="0",model_name="m"}'] == 2
    assert not any(name.startswith("coresched_prefix") and 'engine="1"' in name for name in found)


def test_an_engine_publishes_only_where_a_front_end_collects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(metrics.FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    assert publisher_of(config(), NONE) is None
    monkeypatch.setenv(metrics.FOLDER_VARIABLE, str(tmp_path))
    publisher = publisher_of(config(3), NONE)
    assert publisher is not None
    publisher.publish(SOME)
    assert scraped(tmp_path)['coresched_prefix_passes_total{engine="3",model_name="m"}'] == 9


FRONT_END = """
import os, sys
from coresched_vllm.metrics import FOLDER_VARIABLE, serve_counts
serve_counts(); serve_counts()
from pathlib import Path
from prometheus_client import REGISTRY, generate_latest
from coresched_vllm.counts import VllmPrefixCounts
from coresched_vllm.metrics import SharedCounts
SharedCounts(Path(os.environ[FOLDER_VARIABLE]), ("m", "0"), VllmPrefixCounts)
assert b'coresched_prefix_passes_total{engine="0",model_name="m"} 0.0' in generate_latest(REGISTRY)
print(os.environ[FOLDER_VARIABLE])
"""


def test_a_front_end_leaves_no_folder_behind() -> None:
    environment = {name: value for name, value in os.environ.items() if name != metrics.FOLDER_VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", FRONT_END], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_with_several_front_ends_nothing_of_ours_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.delenv(metrics.FOLDER_VARIABLE, raising=False)
    serve_counts()
    assert metrics.FOLDER_VARIABLE not in os.environ
