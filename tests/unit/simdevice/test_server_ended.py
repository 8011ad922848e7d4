"""The line of SGLang's log that says why it ended."""

from pathlib import Path

import pytest
from coresched_simdevice.launch import ServerEnded

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
    assert ServerEnded(1, log).reason() == reason


def test_without_a_file_of_the_log_there_is_none() -> None:
    ended = ServerEnded(137, None)
    assert (ended.reason(), ended.last_lines()) == (None, [])
