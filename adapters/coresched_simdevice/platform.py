"""SGLang's entry point for devices (`sglang.srt.platforms`)."""

from coresched_simdevice.configuration import on_or_stop


def activate() -> str | None:
    """The platform's class when CORESCHED_SIMDEVICE asks for it, None otherwise."""
    return "coresched_simdevice.device.SimulatedPlatform" if on_or_stop() else None
