"""The request log of the simulated worker, where its file cannot be written."""

import json
import logging
import resource
from pathlib import Path

import pytest

from coresched.lab.worker.request_log import RequestLog


def test_a_full_disk_is_said_once_and_costs_lines_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log.write("/generate", "a", 1.0, "refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, before[1]))
    try:
        with caplog.at_level(logging.WARNING):
            for label in ("b", "c", "d"):
                log.write("/generate", label, 2.0, "refused")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.write("/generate", "e", 3.0, "refused")
    (said,) = caplog.messages
    assert said.startswith(f"coresched worker: --request-log {str(path)!r} lacks requests from now on: ")
    first, cut_off, last = path.read_bytes().splitlines()
    assert (json.loads(first)["label"], len(cut_off), json.loads(last)["label"]) == ("a", 9, "e")
