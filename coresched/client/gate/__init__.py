"""One batch for a whole process, whatever threads and event loops its harness has."""

from coresched.client.gate.blocks import Resident, Sample, Stage, Turn, sample_in_scope
from coresched.client.gate.gate import Gate
from coresched.client.gate.process import process_gate

__all__ = ["Gate", "Resident", "Sample", "Stage", "Turn", "process_gate", "sample_in_scope"]
