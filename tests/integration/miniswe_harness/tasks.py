"""A data set of small tasks with the model's replies to each, and mini-swe-agent's configuration for them.

Every command is a real one: it writes when it starts and ends, and sleeps in between.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TIMEOUT_S = 3
"""Of a command, by mini-swe-agent's own setting."""

_TOOL = """\
echo "start $1 $(date +%s%N)" >> tool.log
sleep $2
echo "done $1 $3" | tee -a "$1.txt"
echo "end $1 $(date +%s%N)" >> tool.log
"""


def write_tasks(folder: Path, count: int, command_s: float, stuck: int = 0) -> None:
    """`count` tasks of 4 replies, in `folder`/tasks and `folder`/script.jsonl.

    The first `stuck` have one more, whose command never ends by itself.
    """
    (folder / "tasks").mkdir()
    with (folder / "tasks" / "test.jsonl").open("w") as tasks, (folder / "script.jsonl").open("w") as script:
        for number in range(count):
            name = f"task__{number}"
            row = {"instance_id": name, "problem_statement": f"Solve {name}, please."}
            print(json.dumps(row), file=tasks)
            replies = [
                _reply(f"bash tool.sh {name} {command_s} 1"),
                _reply(f"bash tool.sh {name} {command_s} 2", f"bash tool.sh {name} {command_s / 2} 3"),
                _reply(f"bash tool.sh {name} {command_s} 4"),
                _reply(f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat {name}.txt"),
            ]
            if number < stuck:
                replies.insert(0, _reply("sleep 600; echo never"))
            print(json.dumps({"match": f"Solve {name}, please.", "replies": replies}), file=script)


def _reply(*commands: str) -> dict[str, Any]:
    calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
    return {"content": "I go on.", "tool_calls": calls}


def replies_of(folder: Path) -> dict[str, int]:
    """How many replies the script has for each task."""
    lines = map(json.loads, (folder / "script.jsonl").read_text().splitlines())
    return {line["match"].split()[1].rstrip(","): len(line["replies"]) for line in lines}


def write_configuration(folder: Path, url: str, **model: Any) -> None:
    """`folder`/gated.yaml, and the folder in which the commands run. JSON is YAML, too."""
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "tool.sh").write_text(_TOOL)
    environment = {
        "environment_class": "coresched_miniswe.GatedEnvironment",
        "inner_class": "local",
        "cwd": str(folder / "work"),
        "timeout": TIMEOUT_S,
        "env": {"BASH_ENV": ""},
    }
    model = {
        "model_class": "coresched_miniswe.GatedModel",
        "inner_class": "litellm",
        "model_name": "openai/m",
        "model_kwargs": {"api_base": f"{url}/v1", "api_key": "none"},
        **model,
    }
    (folder / "gated.yaml").write_text(json.dumps({"environment": environment, "model": model}))
