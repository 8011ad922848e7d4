"""Whether the installed SGLang takes this product's adapters; found out in a process that loads SGLang.

SGLang only logs a plugin that it skips or that fails, and goes on without it. So what counts is what it
offers once it has loaded its plugins.
"""

import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module

import msgspec

PLUGINS = "sglang.srt.plugins"
PLUGIN = "coresched"
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class SglangAdapters:
    """What was found; an adapter lacks functions and fields that it needs and this SGLang has not."""

    version: str
    tested: tuple[str, ...]
    """The versions that the plugin is tested with."""
    policies: tuple[str, ...]
    """Its names for --schedule-policy."""
    discovered: bool
    """Whether SGLang finds it among the installed entry points."""
    offered: tuple[str, ...]
    """The policies that SGLang takes with its plugins loaded."""
    plugin_lacks: tuple[str, ...]
    device_lacks: tuple[str, ...]
    """The same for the simulated device."""


def inspect_here() -> SglangAdapters:
    """Load SGLang and its plugins into this process, as its server does.

    Raises what the import of a broken SGLang raises.
    """
    from argparse import ArgumentParser
    from importlib.metadata import entry_points

    from coresched_sglang.compatibility import TESTED_VERSIONS, missing, sglang_version
    from coresched_sglang.names import POLICIES
    from coresched_simdevice.hooks import unsupported

    import_module("sglang.srt.managers.scheduler")
    # Before the plugins are loaded, which put other functions there.
    plugin_lacks, device_lacks = missing(), unsupported()
    offered: tuple[str, ...] = ()
    if not plugin_lacks:
        from sglang.srt.plugins import load_plugins

        load_plugins()
        from sglang.srt.server_args import ServerArgs

        parser = ArgumentParser()
        ServerArgs.add_cli_args(parser)
        (taken,) = (action.choices for action in parser._actions if action.dest == "schedule_policy")
        offered = tuple(name for name in POLICIES if name in (taken or ()))
    return SglangAdapters(
        version=sglang_version(),
        tested=tuple(TESTED_VERSIONS),
        policies=tuple(POLICIES),
        discovered=bool(entry_points(group=PLUGINS, name=PLUGIN)),
        offered=offered,
        plugin_lacks=tuple(plugin_lacks),
        device_lacks=tuple(device_lacks),
    )


def inspect_sglang() -> SglangAdapters | str:
    """What another process of this interpreter finds, or the line that it ended with."""
    command = [sys.executable, "-m", "coresched.cli.sglang_adapters"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"SGLang was not loaded within {TIMEOUT_S:g} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=SglangAdapters)


if __name__ == "__main__":
    print(msgspec.json.encode(inspect_here()).decode())
