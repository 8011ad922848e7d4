"""The simulated device as SGLang sees it: an out-of-tree platform of known memory on the CPU.

Imported by SGLang only, and only when the device is on.
"""

from typing import Any

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

from coresched_simdevice.configuration import stop
from coresched_simdevice.flags import refusal
from coresched_simdevice.hooks import missing_hooks
from coresched_simdevice.memory import ledger


class SimulatedPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc]  # untyped without SGLang
    """The out-of-tree kind keeps SGLang from choosing kernels that need a GPU, or its own CPU kernels."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """Called once in the server's first process, after every plugin has been loaded."""
        if unhooked := missing_hooks():
            stop(
                f"SGLang did not replace {', '.join(unhooked)}; the log above says why. SGLANG_PLUGINS must "
                "be unset, or name coresched-simdevice"
            )
        if problem := refusal(server_args):
            stop(problem)
        # SGLang keeps memory free for the decode graphs of its largest captured batch, which it takes from
        # this flag on a CPU and from the device's memory elsewhere. 0 means the latter, as on a GPU.
        server_args.torch_compile_max_bs = 0

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return ledger().total

    def get_current_memory_usage(self, device: Any = None) -> float:
        return float(ledger().total - ledger().free)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        return ledger().free, ledger().total

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def support_mamba_cache_extra_buffer(self) -> bool:
        return True

    def is_pin_memory_available(self, device: Any = None) -> bool:
        return False
