"""Fixtures of the tests that run the real engine."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from integration.sglang_engine.engine_client import Client, check, eventually
from integration.sglang_engine.environment import engine_python
from integration.sglang_engine.servers import FRACTION, MEMORY, WEIGHTS, WORKLOAD, EngineServer, boot
from unit.capacity.model_configs import CONFIGS, write_config

from coresched.capacity.plan import Plan
from coresched.capacity.planner import plan


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """An interpreter with SGLang 0.5.23 and this checkout's coresched, with its entry points."""
    return engine_python()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("model"), CONFIGS["Ling-3.0-tiny"])


@pytest.fixture(scope="module")
def planned(config: Path) -> Plan:
    return plan(config, WORKLOAD, gpu_memory=MEMORY, weights=WEIGHTS, memory_fraction=FRACTION)


@pytest.fixture(scope="module")
def server(
    sglang_python: Path, config: Path, planned: Plan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer]:
    flags = (
        *planned.engine_flags,
        *("--mem-fraction-static", str(FRACTION), "--schedule-policy", "routing-prefix"),
        # Admits requests that will not fit to their end, so that some are retracted.
        *("--schedule-conservativeness", "0.1"),
        *("--enable-metrics", "--enable-cache-report", "--log-level-http", "warning", "--sleep-on-idle"),
    )
    log = tmp_path_factory.mktemp("server") / "log"
    with boot(sglang_python, config, flags, log=log) as running:
        yield running


@pytest_asyncio.fixture
async def client(server: EngineServer) -> AsyncIterator[Client]:
    """After each test the server must answer a plain request with exactly the tokens asked for, at once."""
    # A server drops connections that were idle for 5 s; none is used again so.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, max_field_size=1 << 21) as session:
        made = Client(server, session)
        yield made
        await eventually(made.idle)
        check(await made.generate(9, 3, routing_key="after"), 9, 3)
        assert server.process.poll() is None


@pytest.fixture
def many(planned: Plan) -> int:
    """More requests than run at once, so that some run and some wait."""
    return 2 * planned.pools.max_running_requests
