"""SGLang's command line flags, read by SGLang's own parser, as fields of its ServerArgs."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from coresched_engine.fleet.wire import Parsed

from coresched.errors import InputError
from coresched_simdevice import flags as device_flags
from coresched_simdevice.virtual.boot import DEVICE_ARGS

ONE_RANK = {
    "tp_size": "an engine in virtual time has one rank: give the config, memory and weights of that",
    "dp_size": "give more --workers instead",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"SGLang's flags, behind --: {message}")


def parse_flags(flags: Sequence[str], model_path: str) -> tuple[dict[str, Any], Parsed]:
    """The fields that ``flags`` set, and what else is to be known. SGLang must be loaded, with its plugins.

    Raises InputError for flags that this SGLang, or an engine in virtual time, does not take.
    """
    from sglang.srt.server_args import ServerArgs
    from sglang.version import __version__

    parser = _Parser(add_help=False)
    ServerArgs.add_cli_args(parser)
    policies = next(
        list(action.choices or ()) for action in parser._actions if action.dest == "schedule_policy"
    )
    for flag in ("--model-path", "--model", "--config"):
        if any(given == flag or given.startswith(f"{flag}=") for given in flags):
            fix = "the flags themselves" if flag == "--config" else "the model as --model-config"
            raise InputError(f"{flag} is given to sglang; give {fix} instead")
    command = ["--model-path", model_path, *flags]
    resolved = parser.parse_args(command)
    for name, value in DEVICE_ARGS.items():
        setattr(resolved, name, value)
    for name, reason in ONE_RANK.items():
        if getattr(resolved, name) > 1:
            raise InputError(f"{_flag(name)} is {getattr(resolved, name)}; {reason}")
    # Only what was given: SGLang tells its own defaults from the same value said by the user.
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    given = vars(parser.parse_args(command))
    for name in DEVICE_ARGS.keys() & given.keys() - {"log_level"}:
        setattr(resolved, name, given[name])
    if problem := device_flags.refusal(resolved):
        raise InputError(problem)
    parsed = Parsed(
        version=__version__,
        policy=resolved.schedule_policy,
        policies=policies,
        given=sorted(given.keys() - {"model_path"}),
        mixed=bool(resolved.enable_mixed_chunk),
    )
    return given, parsed


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
