"""Which of BFCL's handlers get labels, and what is said of the others."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from integration.bfcl_harness.environment import BFCL
from integration.bfcl_harness.harness_runs import Project, jsonl, scripted_worker
from uv_command import run_uv

GATE = {"CORESCHED_SAMPLE_CONCURRENCY": "4", "CORESCHED_ENVIRONMENT_CONCURRENCY": "1"}
TRANSFORMERS = ("transformers==5.24.0", "huggingface-hub==2.4.0", "safetensors==0.8.0", "fsspec==2026.9.0")
"""Without torch it has the tokenizers that handlers of local engines use; no other test needs it."""
ONE_WORD = json.dumps({"match": "", "replies": [{"content": "Done."}]})
CASES = [f"multi_turn_base_{number}" for number in range(3)]


def tokenizer(folder: Path) -> Path:
    """What a handler of a local engine reads before it sends text prompts."""
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    config = {"model_type": "llama", "max_position_embeddings": 100_000}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.by_hand
def test_requests_to_a_local_engine_carry_their_labels(tmp_path: Path) -> None:
    libraries = tmp_path / "transformers"
    to = ("--target", libraries, "--python", BFCL.python(), "--no-deps")
    assert run_uv("pip", "install", "--quiet", *to, *TRANSFORMERS).returncode == 0
    local = tokenizer(tmp_path / "tokenizer")
    with scripted_worker(tmp_path, ONE_WORD, model=str(local)) as url:
        project = Project(tmp_path / "project", url)
        project.choose("multi_turn_base", CASES)
        engine = ("--skip-server-setup", "--local-model-path", str(local), "--num-threads", "2")
        done = project.run(
            *project.generate("rows", *engine, model="Qwen/Qwen3-0.6B"),
            PYTHONPATH=str(libraries),
            REMOTE_OPENAI_BASE_URL=f"{url}/v1",
            **GATE,
        )
    assert done.returncode == 0, done.stderr
    turns = {case: sum(map(len, row["latency"])) for case, row in project.rows("rows").items()}
    requests = jsonl(tmp_path / "requests.jsonl")
    assert {request["path"] for request in requests} == {"/v1/completions"}
    labels = [request["label"] for request in requests]
    assert {case: labels.count(case) for case in CASES} == turns
    assert sum(turns.values()) == len(labels)
    assert done.stderr.count("--num-threads 2 is below CORESCHED_SAMPLE_CONCURRENCY 4") == 1


def test_turns_are_routed_among_workers(tmp_path: Path) -> None:
    folders = [tmp_path / "w0", tmp_path / "w1"]
    for folder in folders:
        folder.mkdir()
    with scripted_worker(folders[0], ONE_WORD) as one, scripted_worker(folders[1], ONE_WORD) as other:
        project = Project(tmp_path / "project", "http://workers.invalid")
        project.choose("multi_turn_base", CASES)
        words = project.generate("rows", "--num-threads", "4")
        done = project.run(*words, CORESCHED_WORKERS=f"{one},{other}", **GATE)
    assert done.returncode == 0, done.stderr
    homes = defaultdict(set)
    for folder in folders:
        for request in jsonl(folder / "requests.jsonl"):
            homes[request["label"]].add(folder.name)
    assert sorted(homes) == CASES
    assert not any("traceback" in row for row in project.rows("rows").values())


def test_a_handler_that_cannot_be_labelled_is_named(tmp_path: Path) -> None:
    claude = "claude-sonnet-4-5-20250929-FC"
    with scripted_worker(tmp_path, ONE_WORD) as url:  # knows no such endpoint, so that each query fails
        project = Project(tmp_path / "project", url)
        project.choose("simple_python", ["simple_python_0", "simple_python_1"])
        there = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": url}
        words = project.generate("rows", "--num-threads", "4", model=claude)
        done = project.run(*words, **there, **GATE)
        refused = project.run(*words, "-o", CORESCHED_WORKERS=url, **there, **GATE)
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "coresched: warning" in line]
    assert "ClaudeHandler sends by other means" in warning
    assert "0 samples finished, 2 withdrawn" in done.stderr
    assert refused.returncode == 2, refused.stderr
    assert "ClaudeHandler" in refused.stderr
    assert "unset CORESCHED_WORKERS" in refused.stderr
