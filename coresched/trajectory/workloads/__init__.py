"""The workload shipped with the package, so that a first run needs no trace of one's own.

swe-demo.jsonl.gz is what `coresched trace generate swe --count 600 --seed 2` writes.
"""

from importlib.resources import as_file, files

from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory


def demo_workload() -> list[Trajectory]:
    """600 trajectories of the generator's `swe` profile, seed 2."""
    with as_file(files(__name__) / "swe-demo.jsonl.gz") as path:
        return load_trajectories(path)
