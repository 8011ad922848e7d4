"""SGLang's arguments: the policies among the choices, and what cannot work with them refused at start."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coresched_sglang.compatibility import offered_policies, residency_missing, sglang_version
from coresched_sglang.names import POLICIES, ROUTING_PREFIX, ROUTING_RESIDENCY

logger = logging.getLogger(__name__)

# What keeps prefixes elsewhere than in the tree on the device, where routing-residency looks.
_ELSEWHERE = (
    "enable_hierarchical_cache",
    "enable_lmcache",
    "enable_flexkv",
    "enable_unified_cache_external_linker",
    "enable_streaming_session",
)


def offer(_result: object, parser: argparse.ArgumentParser, *_args: object, **_kwargs: object) -> None:
    """After ``ServerArgs.add_cli_args``: the policies join the choices of --schedule-policy."""
    for action in parser._actions:
        if action.dest == "schedule_policy" and action.choices is not None:
            ours = offered_policies()
            action.choices = [*action.choices, *(name for name in ours if name not in action.choices)]


def check(original: Callable[..., Any], server_args: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``ServerArgs.check_server_args``, which runs where the server is started, before any process is.

    A label capacity that cannot be used, and what the policy cannot work with, end SGLang's own commands with
    one line and exit code 2; a program that uses SGLang's `Engine` gets an InputError.
    """
    policy = server_args.schedule_policy
    if policy not in POLICIES:
        return original(server_args, *args, **kwargs)
    # Not loaded into servers that use no policy of ours.
    from coresched.errors import InputError

    try:
        _check_policy(server_args)
    except InputError as error:
        if not _is_sglangs_command():
            raise
        print(f"coresched_sglang: {error}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None
    if not server_args.enable_priority_scheduling:
        return original(server_args, *args, **kwargs)
    with _presented_as_fcfs(server_args):
        return original(server_args, *args, **kwargs)


def _check_policy(server_args: Any) -> None:
    """Raises InputError for what cannot be used."""
    from coresched.errors import InputError
    from coresched_sglang.configuration import VARIABLES, asked_label_capacity

    policy = server_args.schedule_policy
    if reason := _cannot_work(server_args):
        raise InputError(f"--schedule-policy {policy} {reason}")
    if policy == ROUTING_PREFIX:
        asked_label_capacity(os.environ)
    elif given := [name for name in VARIABLES if os.environ.get(name)]:
        logger.warning(
            "--schedule-policy %s has no label capacity, so %s %s ignored",
            policy,
            " and ".join(given),
            "is" if len(given) == 1 else "are",
        )


def _is_sglangs_command() -> bool:
    """Whether this process is ``sglang``, or a module of SGLang's that was run as the program."""
    program = sys.modules["__main__"]
    spec = getattr(program, "__spec__", None)
    name = Path(getattr(program, "__file__", None) or "").stem if spec is None else spec.name
    return bool(name.partition(".")[0] == "sglang")


def _cannot_work(server_args: Any) -> str | None:
    """The reason why, if the policy cannot work with the other arguments."""
    if getattr(server_args, "disaggregation_mode", "null") == "decode":
        return (
            "orders prefills, and --disaggregation-mode decode has none; give it to the prefill server, and "
            "fcfs to this one"
        )
    if getattr(server_args, "enable_pd_role_switch", False):
        return "cannot follow a server that becomes a decode server; leave out --enable-pd-role-switch"
    if getattr(server_args, "dllm_algorithm", None) is not None:
        return "does not see what diffusion models admit; use fcfs"
    if server_args.schedule_policy == ROUTING_RESIDENCY:
        return _cannot_follow_the_cache(server_args)
    return None


def _cannot_follow_the_cache(server_args: Any) -> str | None:
    if lacks := residency_missing():
        lacking = "; ".join(lacks)
        return f"cannot follow the cache of SGLang {sglang_version()}: {lacking}; use {ROUTING_PREFIX}"
    for name in _ELSEWHERE:
        if getattr(server_args, name, False):
            return (
                f"sees the prefix cache on the device only, and --{name.replace('_', '-')} keeps prefixes "
                f"elsewhere; leave it out, or use {ROUTING_PREFIX}"
            )
    return None


@contextmanager
def _presented_as_fcfs(server_args: Any) -> Iterator[None]:
    """SGLang's check knows by name which of its own policies keep to priorities; ours sort by them first."""
    policy = server_args.schedule_policy
    assign = super(type(server_args), server_args).__setattr__  # past the seal of a resolved record
    assign("schedule_policy", "fcfs")
    try:
        yield
    finally:
        assign("schedule_policy", policy)
