"""mini-swe-agent's DockerEnvironment with a program in docker's place, under its SWE-bench runner's own code.

`run` prints an id, or fails for an image with "broken" in it; `exec` runs the command here.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from minisweagent.models.test_models import make_output
from minisweagent.run.benchmarks.swebench import process_instance
from minisweagent.run.benchmarks.utils.batch_progress import RunBatchProgressManager

_DOCKER = """\
#!/bin/bash
log="$(dirname "$0")/docker.log"
case "$1" in
run)
    image="${@: -3:1}"
    case "$image" in *broken*) exit 125 ;; esac
    echo "run $image" >> "$log"
    echo "$image" ;;
exec) exec "${@: -3}" ;;
stop) echo "stop $2" >> "$log" ;;
esac
"""


def run_in_containers(folder: Path, ids: list[str], threads: int) -> dict[str, Any]:
    """The runner's work on these instances, without a data set."""
    docker = folder / "docker"
    docker.write_text(_DOCKER)
    docker.chmod(0o755)
    submit = ("sleep 0.2", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch")
    config = {
        "agent": {"system_template": "s", "instance_template": "{{task}}"},
        "environment": {
            "environment_class": "coresched_miniswe.GatedEnvironment",
            "inner_class": "docker",
            "executable": str(docker),
            "interpreter": ["bash", "-c"],
        },
        "model": {
            "model_name": "deterministic",
            "model_class": "coresched_miniswe.GatedModel",
            "inner_class": "deterministic",
            "outputs": [make_output("", [{"command": command}]) for command in submit],
        },
        "run": {"env_startup_command": "echo prepared for {{instance_id}}"},
    }
    (folder / "out").mkdir()
    progress = RunBatchProgressManager(len(ids))

    def work(id: str) -> None:
        process_instance({"instance_id": id, "problem_statement": "t"}, folder / "out", config, progress)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, ids))
    found = {}
    for id in ids:
        path = folder / "out" / id / f"{id}.traj.json"
        found[id] = json.loads(path.read_text())["info"] if path.exists() else None
    events = (folder / "docker.log").read_text().split("\n")[:-1]
    return {
        "infos": found,
        "started": Counter(event.split()[1] for event in events if event.startswith("run")),
        "statuses": progress._get_overview_data()["instances_by_exit_status"],
    }
