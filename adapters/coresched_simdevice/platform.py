"""SGLang's entry point for devices (`sglang.srt.platforms`)."""

from coresched_simdevice.configuration import on_or_stop, stop


def activate() -> str | None:
    """The platform's class when CORESCHED_SIMDEVICE asks for it, None otherwise."""
    if not on_or_stop():
        return None
    try:
        import coresched_simdevice.device  # noqa: F401
    except ImportError as error:
        stop(f"this SGLang has no platforms as the simulated device needs them ({error}); use SGLang 0.5.23")
    return "coresched_simdevice.device.SimulatedPlatform"
