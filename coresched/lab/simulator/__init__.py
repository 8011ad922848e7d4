"""A batch of trajectories on simulated workers, in virtual time."""

from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import RunSettings

__all__ = ["RunSettings", "WorkerModel", "load_worker_model", "simulate"]
