"""The machine a benchmark ran on."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """What a reader needs to compare two runs. ``load``: 1-minute load average before the run, if known."""

    cpu: str
    cores: int
    system: str
    python: str
    load: float | None


def this_machine() -> Machine:
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )


def usable_cores() -> int:
    """Logical cores this process may run on, which in a container are often fewer than the machine has."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The model's marketing name where the system tells it, else the architecture."""
    if sys.platform == "linux":
        return model_name(Path("/proc/cpuinfo").read_text()) or platform.machine()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return (
            subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            or platform.machine()
        )
    return platform.processor() or platform.machine()


def model_name(cpuinfo: str) -> str | None:
    """The first ``model name`` of /proc/cpuinfo; ARM kernels give none."""
    for line in cpuinfo.splitlines():
        field, _, value = line.partition(":")
        if field.strip() == "model name" and value.strip():
            return value.strip()
    return None
