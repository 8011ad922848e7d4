"""SGLang's entry point for plugins (`sglang.srt.plugins`)."""

from coresched_simdevice.configuration import on_or_stop, stop
from coresched_simdevice.lifetime import end_if_orphaned


def register() -> None:
    """Register the hooks when CORESCHED_SIMDEVICE asks for the device.

    A version of SGLang that lacks what they need ends the process.
    """
    if not on_or_stop():
        return
    end_if_orphaned()
    import sglang
    import torch

    from coresched_simdevice.execution import unpinned
    from coresched_simdevice.hooks import register_hooks, unsupported

    if lacking := unsupported():
        stop(
            f"SGLang {sglang.__version__} has no {', '.join(lacking)}, which the simulated device needs; "
            f"use SGLang 0.5.23, or leave CORESCHED_SIMDEVICE out"
        )
    # The scheduler pins small tensors of states on the host without asking the platform.
    torch.Tensor.pin_memory = unpinned
    register_hooks()
