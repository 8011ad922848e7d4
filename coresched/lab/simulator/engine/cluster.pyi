from coresched.lab.simulator.memory import Memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload

class Cluster:
    """Runs one batch: `advance` until it is done, then read `outcome`."""

    def __init__(
        self, workload: Workload, settings: RunSettings, model: WorkerModel, memory: Memory
    ) -> None: ...
    @property
    def completed(self) -> int:
        """Samples finished so far."""

    def advance(self, max_events: int) -> bool:
        """Process up to ``max_events`` events. Returns False once the batch is done."""

    def outcome(self) -> Outcome:
        """The Outcome of a batch that is done."""
