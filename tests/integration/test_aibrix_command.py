"""`coresched aibrix` as a process: asked, scraped, stopped, and started with what cannot be."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from coresched_aibrix.endpoint import PATH
from gateways import client
from prometheus_client.parser import text_string_to_metric_families
from selection_requests import pods, question, sent

COMMAND = [sys.executable, "-m", "coresched", "aibrix", "--listen", "127.0.0.1:0"]


async def test_it_picks_is_scraped_and_stops(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--metrics", "127.0.0.1:0", "--token-file", str(token), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        lines = [(await asyncio.wait_for(process.stdout.readline(), 60)).decode() for _ in range(2)]
        assert lines[0].startswith("coresched aibrix: listening on 127.0.0.1:")
        url, metrics = f"http://{lines[0].split()[-1]}{PATH}", lines[1].split()[-1]
        running: dict[str, int | None] = dict.fromkeys(pods(3), 0)
        async with client() as session:
            picked = []
            for n in range(30):
                asked = question(running, request_id=f"r{n}", attributes={"label": "hot"})
                async with session.post(url, **sent(asked, Authorization="Bearer s3cret")) as answer:
                    assert answer.status == 200
                    picked.append((await answer.json(content_type=None))["status"]["target"]["id"])
            async with session.post(url, **sent(question(running))) as answer:
                assert answer.status == 401
            async with session.get(metrics) as answer:
                families = list(text_string_to_metric_families(await answer.text()))
        values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
        assert values["coresched_aibrix_pods",] == 3
        assert values["coresched_aibrix_selected_total", "attribute"] == 30
        assert values["coresched_aibrix_spilled_total",] == 30 - picked.count(picked[0])
        assert values["coresched_aibrix_refused_requests_total", "401"] == 1
        assert values["coresched_aibrix_decision_seconds_count",] == 30
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--router", "sticky-bounded"],
            "--router sticky-bounded counts what it placed",
        ),
        (["--token-file", "/nonexistent"], "--token-file '/nonexistent' cannot be read"),
        (["--token-file", "/dev/null"], "must hold one line of 1 to 8192 characters"),
        (["--token-file", ""], "--token-file '' cannot be read: No such file"),
        (["--token-file", "/dev/zero"], "must hold one line of 1 to 8192 characters"),
        (["--label-attribute", " "], "--label-attribute must be the name of a policy attribute"),
        (["--virtual-nodes", "65537"], "virtual_nodes must be at most 65536"),
    ],
)
def test_what_cannot_be_is_refused_before_it_listens(options: list[str], said: str) -> None:
    ended = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""
