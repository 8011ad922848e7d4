"""The line of SGLang's log that says why it ended."""

from io import BytesIO, StringIO
from pathlib import Path

import pytest
from coresched_simdevice.server_log import ServerLog

NO_MEMORY = "ValueError: Loaded weights leave no GPU memory for the KV cache. Raise --mem-fraction-static."
TRACEBACK = ["Traceback (most recent call last):", '  File "scheduler.py", line 1, in run', "    raise error"]
DIED = "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9)."


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([*TRACEBACK, NO_MEMORY, "[12:30:21] Received sigquit from a child process."], NO_MEMORY),
        ([*TRACEBACK, NO_MEMORY, *TRACEBACK, "EOFError: ", *TRACEBACK, DIED], NO_MEMORY),
        ([*TRACEBACK, DIED], DIED),
        (
            ["usage: launch_server.py [-h]", "launch_server.py: error: no --flag"],
            "launch_server.py: error: no --flag",
        ),
        (["coresched_simdevice: --pp-size is 2"], "coresched_simdevice: --pp-size is 2"),
        (["torch.OutOfMemoryError: out of memory"], "torch.OutOfMemoryError: out of memory"),
        (["[12:30:21] ValueError: is only logged", "Killed"], None),
        ([], None),
    ],
)
def test_the_last_line_that_gives_a_reason(tmp_path: Path, lines: list[str], reason: str | None) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{line}\n" for line in lines))
    assert ServerLog(log).reason() == reason


def test_what_is_shown_is_read_too(capfd: pytest.CaptureFixture[str]) -> None:
    log = ServerLog(None)
    log.show(BytesIO(f"first\n{NO_MEMORY}\nlast \xff".encode("latin-1"))).join(60)
    assert capfd.readouterr().err == f"first\n{NO_MEMORY}\nlast \N{REPLACEMENT CHARACTER}"
    assert (log.reason(), log.last_lines()) == (NO_MEMORY, [])


def test_a_stderr_that_nobody_reads_does_not_stop_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    log = ServerLog(None)
    log.show(BytesIO(f"first\n{NO_MEMORY}\n".encode())).join(60)
    assert log.reason() == NO_MEMORY
