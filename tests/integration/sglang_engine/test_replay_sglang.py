"""`coresched replay` on SGLang's own server: it takes the prompts as they are, and reuses them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from integration.sglang_engine.servers import EngineServer, boot
from simulated import trajectory
from unit.capacity.model_configs import CONFIGS, write_config

from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.events import Inference, read_events
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.record import EVENTS

pytestmark = [pytest.mark.sglang, pytest.mark.by_hand]

SPEED = 50.0
BATCH = [
    trajectory(f"t{n}", [(70, 0.5, 90), (40, 0.2, 300), (30, None, 0)], prompt=600 + 64 * n) for n in range(4)
]


@pytest.fixture(scope="module")
def server(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    folder = tmp_path_factory.mktemp("server")
    config = write_config(folder, CONFIGS["Ling-3.0-tiny"])
    flags = ["--context-length", "16384", "--enable-metrics", "--enable-cache-report"]
    with boot(sglang_python, config, flags, log=folder / "log", speed=SPEED) as running:
        yield running


async def replay(
    server: EngineServer, folder: Path, protocol: Literal["sglang", "openai"] | None
) -> Conducted:
    return await conduct(
        make_plan(BATCH),
        ReplaySettings(sample_concurrency=2, environment_concurrency=1, speed=SPEED),
        [Endpoint("w", server.url)],
        tokens=TokenSource(0, 1000, 30000),
        folder=folder,
        traces=[],
        protocol=protocol,
        flush_cache=True,
    )


@pytest.mark.parametrize("protocol", [None, "openai"])
async def test_tokens_are_exact_and_later_turns_find_earlier_ones(
    server: EngineServer, tmp_path: Path, protocol: Literal["openai"] | None
) -> None:
    done = await replay(server, tmp_path / "r", protocol)
    assert (done.ending.reason, done.metrics.completed_samples, done.metrics.failed_requests) == (None, 4, 0)
    turns = [event for event in read_events(tmp_path / "r" / EVENTS) if isinstance(event, Inference)]
    recorded = {one.id: one for one in BATCH}
    for event in turns:
        one = recorded[event.sample]
        assert event.prompt_tokens == one.prompt_tokens()[event.turn]
        assert event.output_tokens == one.turns[event.turn].output_tokens
        assert event.cached_tokens is not None
        assert (event.cached_tokens > 0) == (event.turn > 0)
    if protocol is None:
        assert all(event.first_token_s is not None and event.first_token_s > 0 for event in turns)
