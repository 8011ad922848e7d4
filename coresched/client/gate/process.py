"""The one gate of a process, as its environment variables ask for it."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coresched.client.errors import ServiceError
from coresched.client.gate.gate import Gate
from coresched.core.checks import check_slack
from coresched.core.routers import ROUTERS
from coresched.errors import InputError
from coresched.recording.writer import RecordingError, recording_folder

T = TypeVar("T")

PREFIX = "CORESCHED_"

_OPTIONS = (
    *(
        "sample_concurrency",
        "environment_concurrency",
        "resident_concurrency",
        "environment_policy",
        "band_s",
        "admission_policy",
        "history",
    ),
    *("bucket_s", "workers", "load_bound", "slack", "router", "record"),
    *("service", "batch", "ca", "certificate", "key"),
)
VARIABLES = tuple(PREFIX + name.upper() for name in _OPTIONS)
"""That ask for a gate."""

_logger = logging.getLogger("coresched.client")
_lock = threading.Lock()
_made: tuple[int, Gate] | None = None  # with the process that made it


def process_gate(environment: Mapping[str, str] = os.environ) -> Gate | None:
    """The gate of this process, made at the first call and closed at the process's end.

    None where no option of it is set. Each option of `Gate` is a variable of its name:
    CORESCHED_SAMPLE_CONCURRENCY, without which none of the others may be set,
    CORESCHED_ENVIRONMENT_CONCURRENCY, CORESCHED_ENVIRONMENT_POLICY, CORESCHED_BAND_S, CORESCHED_BUCKET_S,
    CORESCHED_WORKERS (separated by commas), CORESCHED_LOAD_BOUND, CORESCHED_SLACK, CORESCHED_ROUTER,
    CORESCHED_RESIDENT_CONCURRENCY, CORESCHED_ADMISSION_POLICY, CORESCHED_HISTORY (a file of `coresched trace
    history`), CORESCHED_RECORD, CORESCHED_SERVICE, CORESCHED_BATCH, CORESCHED_CA, CORESCHED_CERTIFICATE,
    CORESCHED_KEY. One that is empty counts as not set.

    Raises InputError naming the variable, and what `Gate` raises. Raises RuntimeError in a process forked
    from one whose gate is embedded, since each would have the capacity for itself.
    """
    global _made
    with _lock:
        if _made is not None and _made[0] == os.getpid():
            return _made[1]
        options = gate_options(environment)
        if options is None:
            return None
        if _made is not None and "service" not in options:
            raise RuntimeError(
                "this process was forked from one that has a gate of its own, so that the capacities would "
                "count twice; share one batch through CORESCHED_SERVICE and CORESCHED_BATCH"
            )
        if "record" in options:  # a batch would name its own option
            recording_folder(options["record"], f"{PREFIX}RECORD")
        gate = Gate(**options)
        atexit.register(close_at_exit, gate)
        _made = os.getpid(), gate
        return gate


def close_at_exit(gate: Gate) -> None:
    """At the process's end, where an exception would be a traceback that nobody can catch."""
    try:
        gate.close()
    except (ServiceError, RecordingError) as error:
        _logger.error("%s", error)


def gate_options(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The options that the variables give, or None where they ask for no gate. Raises InputError."""

    def read(name: str, of: Callable[[str], T], what: str) -> T | None:
        variable = PREFIX + name.upper()
        text = environment.get(variable, "").strip()
        if not text:
            return None
        try:
            return of(text)
        except ValueError:
            raise InputError(f"{variable} must be {what}, got {text!r}") from None

    def one_of(name: str, *choices: str) -> str | None:
        def chosen(text: str) -> str:
            if text not in choices:
                raise ValueError
            return text

        return read(name, chosen, " or ".join(choices))

    given: dict[str, Any] = {
        "sample_concurrency": read("sample_concurrency", _count, "a whole number of at least 1"),
        "environment_concurrency": read("environment_concurrency", _count, "a whole number of at least 1"),
        "resident_concurrency": read("resident_concurrency", _count, "a whole number of at least 1"),
        "environment_policy": one_of("environment_policy", "caas", "fcfs"),
        "admission_policy": one_of("admission_policy", "submission", "longest-expected-first"),
        "band_s": read("band_s", _positive, "a number of seconds above 0"),
        "bucket_s": read("bucket_s", _positive, "a number of seconds above 0"),
        "workers": read("workers", _names, "base URLs separated by commas, each once"),
        "load_bound": read("load_bound", _bound, "a number of at least 1"),
        "slack": read("slack", _slack, "a whole number of requests from 0 to 1000000"),
        "router": one_of("router", *ROUTERS),
    }
    given |= {
        name: read(name, str, "")
        for name in ("history", "record", "service", "batch", "ca", "certificate", "key")
    }
    options = {name: value for name, value in given.items() if value is not None}
    if not options:
        return None
    if "sample_concurrency" not in options:
        beside = next(iter(options)).upper()
        raise InputError(
            f"{PREFIX}SAMPLE_CONCURRENCY must be set with {PREFIX}{beside}: samples admitted at once, the "
            "same number in each process of a batch"
        )
    if "service" in options and "batch" not in options:
        raise InputError(f"{PREFIX}BATCH must be set with {PREFIX}SERVICE: the batch's name there")
    for name in ("router", "slack"):
        if name in options and not {"workers", "service"} & options.keys():
            raise InputError(
                f"{PREFIX}{name.upper()} is for workers to route among; set {PREFIX}WORKERS too, or neither"
            )
    for name in ("workers", "load_bound", "slack", "router"):
        if "service" in options and name in options:
            raise InputError(
                f"{PREFIX}{name.upper()} is a matter of the service (`coresched serve --worker`); leave it "
                f"out, or {PREFIX}SERVICE"
            )
    longest_first = options.get("admission_policy") == "longest-expected-first"
    if longest_first != ("history" in options):
        raise InputError(
            f"{PREFIX}HISTORY, a file of `coresched trace history`, and "
            f"{PREFIX}ADMISSION_POLICY=longest-expected-first go together; set both, or neither"
        )
    for name in ("batch", "ca", "certificate", "key"):
        if name in options and "service" not in options:
            raise InputError(
                f"{PREFIX}{name.upper()} is for a batch at {PREFIX}SERVICE; set that too, or neither"
            )
    return options


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ValueError
    return float(text)


def _bound(text: str) -> float:
    if not 1 <= float(text) < float("inf"):
        raise ValueError
    return float(text)


def _slack(text: str) -> int:
    return check_slack(int(text))


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names
