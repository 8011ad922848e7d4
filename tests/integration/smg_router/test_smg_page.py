"""The examples of docs/smg.md, as they are printed, against a real smg; and what it says of smg's headers."""

import re
from pathlib import Path

import httpx
import pytest
from coresched_smg import SmgRouter, Transport
from model_workers import model_workers
from smg_processes import smg_before

import coresched
from coresched.recording.reader import recording_files

PAGE = Path(__file__).parents[3] / "docs" / "smg.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

pytestmark = pytest.mark.smg


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 2
    with model_workers(3) as workers, smg_before([worker.url for worker in workers]) as url:
        for example in EXAMPLES:
            assert "http://127.0.0.1:30000" in example
            namespace: dict[str, object] = {}
            exec(compile(example.replace("http://127.0.0.1:30000", url), str(PAGE), "exec"), namespace)
            if "results" in namespace:
                assert namespace["results"] == ["Hello you"] * 20
    assert capsys.readouterr().out == "{}\nTrue\n"


async def test_the_engine_sees_the_label_in_the_key_and_what_the_body_has(tmp_path: Path) -> None:
    with model_workers(3) as workers, smg_before([worker.url for worker in workers]) as url:
        with SmgRouter(url) as smg:
            for worker in workers:
                worker.seen.clear()
            async with httpx.AsyncClient(transport=Transport(smg, record=tmp_path)) as client:
                for number in range(12):
                    with coresched.label(f"task-{number}"):
                        body = {"model": smg.model, "messages": [{"role": "user", "content": "a"}]}
                        body["vllm_xargs"] = {"trajectory": f"task-{number}"}
                        answer = await client.post("http://smg/v1/chat/completions", json=body)
                        assert answer.status_code == 200
        urls = {worker.url for worker in workers}
        seen = [seen for worker in workers for seen in worker.seen if seen.path.endswith("/completions")]
    assert sorted(str(seen.label).rpartition(".")[0] for seen in seen) == sorted(
        f"task-{number}" for number in range(12)
    )
    for one in seen:
        label = str(one.label).rpartition(".")[0]
        assert f'"trajectory":"{label}"' in one.body.decode().replace(" ", "")
        assert "x-session-id" not in one.headers
    (recording,) = recording_files(tmp_path)
    assert all(url in recording.read_text() for url in urls)
