"""Starts an SGLang server on the simulated device, waits until it is healthy, and stops it again."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Final

from coresched_engine.virtual.device import read_device
from coresched_engine.virtual.model_config import config_file, model_name

from coresched.capacity.observed import ObservedPools, observe_engine
from coresched.errors import InputError
from coresched.listen import listen_address
from coresched_simdevice import configuration
from coresched_simdevice.model_directory import has_tokenizer, write_model_directory
from coresched_simdevice.server_log import ServerLog

PLATFORM: Final = "coresched-simdevice"

FLAGS: Final = {
    "--host": "127.0.0.1",
    "--port": "30000",
    "--device": "cpu",
    "--load-format": "dummy",
    "--attention-backend": "torch_native",
    "--sampling-backend": "pytorch",
    "--grammar-backend": "none",
}
"""What the server gets where the user does not say otherwise, beside --served-model-name."""

METRICS: Final = "--enable-metrics"


class ServerEnded(Exception):
    """The server ended by itself; ``code`` is its exit code, 128 and the signal's number if one ended it."""

    def __init__(self, code: int, log: ServerLog) -> None:
        super().__init__(code)
        self.code = code
        self.log = log


@dataclass(frozen=True)
class Server:
    """A healthy server; ``pools`` is what it reports of itself, or why it does not."""

    process: "subprocess.Popen[bytes]"
    url: str
    pools: ObservedPools | InputError
    log: ServerLog

    def wait(self) -> None:
        """Until it ends by itself. Raises ServerEnded then."""
        raise ServerEnded(_exit_code(self.process.wait()), self.log)


@contextmanager
def serving(
    model: str,
    device: Mapping[str, str],
    flags: Sequence[str],
    *,
    called: Mapping[str, str],
    log: Path | None = None,
    start_timeout_s: float = 600.0,
    grace_s: float = 5.0,
) -> Iterator[Server]:
    """A server for the config.json or folder ``model`` while the block runs; all its processes end with it.

    They end with this thread too, on Linux even where that is killed.
    ``device`` has the variables of `configuration`, which errors name as ``called`` does; ``flags`` are
    SGLang's. Its log goes to the file ``log``, else to stderr. At the end it has ``grace_s`` seconds to stop.
    Raises InputError, before anything is started, for what cannot be used, and ServerEnded if the server ends
    before it is healthy.
    """
    read_device(device, called)
    require_sglang()
    config = config_file(model)
    if given := [flag for flag in ("--model-path", "--model") if option(flags, flag) is not None]:
        raise InputError(f"{given[0]} is given to sglang; give the model as --model-config instead")
    all_flags = [*flags, *_defaults(flags, config)]
    url = server_url(all_flags)
    with tempfile.TemporaryDirectory(prefix="coresched-sglang-sim-") as scratch:
        folder = config.parent
        if not has_tokenizer(folder):
            folder = Path(scratch) / model_name(config)
            write_model_directory(config, folder)
        server = (sys.executable, "-m", "coresched_simdevice.server", str(os.getpid()))
        command = [*server, "--model-path", str(folder), *all_flags]
        server_log = ServerLog(log)
        with _started(command, {**os.environ, **device}, server_log, grace_s) as process:
            _wait_until_healthy(process, url, server_log, start_timeout_s)
            yield Server(process, url, _pools(url), server_log)


def _defaults(flags: Sequence[str], config: Path) -> list[str]:
    """What ``flags`` do not have of the flags that a server gets."""
    missing = [text for flag in FLAGS if option(flags, flag) is None for text in (flag, FLAGS[flag])]
    if option(flags, METRICS) is None:
        missing.append(METRICS)
    if option(flags, "--served-model-name") is None:
        missing.append(f"--served-model-name={model_name(config)}")
    return missing


def require_sglang() -> None:
    """Raises InputError if this interpreter has no SGLang, or does not show it the simulated device."""
    if util.find_spec("sglang") is None:
        raise InputError(
            f"SGLang is not installed for {sys.executable}; install it there: pip install 'coresched[sglang]'"
        )
    if not metadata.entry_points(group="sglang.srt.platforms", name=PLATFORM):
        raise InputError(
            f"the entry points of coresched are not installed for {sys.executable}, so SGLang would not find "
            "the simulated device; run pip install there, not from a bare checkout"
        )


def option(flags: Sequence[str], name: str) -> str | None:
    """The value of the last ``name VALUE`` or ``name=VALUE`` among flags; None if there is none."""
    value = None
    for place, flag in enumerate(flags):
        if flag == name:
            value = flags[place + 1] if place + 1 < len(flags) else ""
        elif flag.startswith(f"{name}="):
            value = flag.removeprefix(f"{name}=")
    return value


def server_url(flags: Sequence[str]) -> str:
    """Where a server of these flags answers. Raises InputError if something else listens there."""
    host, port = option(flags, "--host") or "", option(flags, "--port") or ""
    bracketed = f"[{host}]" if ":" in host else host
    if port == "0":
        raise InputError("--port is 0 for sglang; give the port, by which it is reached")
    listen_address(f"{bracketed}:{port}", "sglang's --host and --port")
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(bracketed, bracketed)
    return f"http://{reached}:{port}"


def on_device(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of SGLang's processes on the simulated device whose variables ``environ`` has."""
    environment = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **environ,
        configuration.ENABLE: "1",
        "SGLANG_PLATFORM": PLATFORM,
    }
    # Asks for kernels for CPUs, which a forward that is not computed has no use for.
    environment.pop("SGLANG_USE_CPU_ENGINE", None)
    return environment


@contextmanager
def _started(
    command: Sequence[str], environ: Mapping[str, str], log: ServerLog, grace_s: float
) -> "Iterator[subprocess.Popen[bytes]]":
    with log.opened() as output:
        # A session of its own, so that Ctrl-C reaches this process only, and all of the server can be ended.
        process = subprocess.Popen(
            command,
            env=on_device(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        shown = None if process.stdout is None else log.show(process.stdout)
        try:
            yield process
        finally:
            _end(process, grace_s)
            if shown is not None:
                shown.join(grace_s)


def _end(process: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """End the server's processes: asked first, killed after the grace time or at a second signal."""
    try:
        # Its first process ends the others; they would call it a crash if they were asked too.
        process.terminate()
        process.wait(grace_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
        pass
    finally:
        # The group outlives its leader, whose id is the group's, while it has a process.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_healthy(
    process: "subprocess.Popen[bytes]", url: str, log: ServerLog, timeout_s: float
) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + timeout_s
    while True:
        if (code := process.poll()) is not None:
            raise ServerEnded(_exit_code(code), log)
        if time.monotonic() > deadline:
            raise InputError(f"SGLang is not healthy after {timeout_s:g} s; raise --start-timeout-s")
        try:
            with opener.open(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.5)


def _exit_code(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


def _pools(url: str) -> ObservedPools | InputError:
    try:
        return observe_engine(url)
    except InputError as error:
        return error
