"""Fixtures of the tests that run the real engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.sglang_engine.environment import engine_python
from integration.sglang_engine.servers import RUNNING_REQUESTS, EngineServer, boot
from unit.capacity.model_configs import CONFIGS, write_config


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """An interpreter with SGLang 0.5.23 and this checkout's coresched, with its entry points."""
    return engine_python()


@pytest.fixture(scope="session")
def routing_prefix_server(
    sglang_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer]:
    """A server of Ling 3.0 tiny's dimensions under our policy, with little memory for what it admits."""
    folder = tmp_path_factory.mktemp("server")
    config = write_config(folder, CONFIGS["Ling-3.0-tiny"])
    flags = (
        *("--schedule-policy", "routing-prefix", "--enable-metrics", "--enable-cache-report"),
        *("--max-total-tokens", "30000", "--max-running-requests", str(RUNNING_REQUESTS)),
        *("--max-mamba-cache-size", "180", "--context-length", "16384"),
        # Admits requests that will not fit to their end, so that some are retracted.
        *("--schedule-conservativeness", "0.1"),
        *("--log-level-http", "warning", "--sleep-on-idle"),
    )
    with boot(sglang_python, config, flags, log=folder / "server.log", speed=20) as server:
        yield server
