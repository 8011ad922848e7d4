"""The flags of `vllm serve`, read by its own parser, as fields of its EngineArgs. vLLM is imported here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module, util
from typing import Any, NoReturn

from coresched_engine.fleet.wire import Parse, Parsed
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.model_executor.models import ModelRegistry
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

from coresched.capacity.fields import one_line
from coresched.errors import InputError
from coresched_vllm import arguments
from coresched_vllm.compatibility import vllm_version
from coresched_vllm.fleet.flags import refusal
from coresched_vllm.fleet.names import ORDERED, POLICY
from coresched_vllm.names import ROUTING_PREFIX
from coresched_vllm.virtual.executor import SimulatedExecutor

PARSERS = tuple(f"vllm.entrypoints.{place}.cli_args" for place in ("common", "launchers", "openai"))
"""Where the parser of `vllm serve` is made, the newest release first."""

MODEL = ("--model", "--config", "--model-tag")


class _Parser(FlexibleArgumentParser):  # type: ignore[misc]
    def error(self, message: str) -> NoReturn:
        raise InputError(f"vLLM's flags, behind --: {one_line(message)}")


def load_flags(message: Parse) -> tuple[dict[str, Any], Parsed]:
    """The fields of EngineArgs that the flags make, and what else is to be known of them.

    Raises InputError for flags and models that this vLLM, or an engine in virtual time, does not take.
    """
    fields = _fields(message.flags, message.model_path)
    config = make_config(fields)
    if reason := refusal(config, message.flags):
        raise InputError(reason)
    policy = _policy(config)
    if POLICY in message.policies and policy != POLICY:
        _require_routing_prefix({**fields, **ORDERED})
    # Every engine would import it.
    ModelRegistry.resolve_model_cls(config.model_config.architectures, model_config=config.model_config)
    return fields, Parsed(
        version=vllm_version(), policy=policy, policies=[policy, POLICY], given=[], mixed=True
    )


def make_config(fields: dict[str, Any]) -> Any:
    """The VllmConfig of a server. Raises InputError where vLLM refuses one."""
    with refusals():
        # A copy, for vLLM writes into the parts that it is given.
        return EngineArgs(**deepcopy(fields)).create_engine_config(UsageContext.OPENAI_API_SERVER)


@contextmanager
def refusals() -> Iterator[None]:
    """What vLLM refuses is the user's: raises InputError in its words, on one line."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, AssertionError, OSError, NotImplementedError, ImportError) as error:
        raise InputError(f"vLLM refuses this: {_words(error)}") from error


def _words(error: Exception) -> str:
    """Of a validation error of pydantic's only what it says, without where and how to read it."""
    found = getattr(error, "errors", None)
    texts = [str(each.get("msg", "")) for each in found()] if callable(found) else [str(error)]
    text = " ".join("; ".join(texts).removeprefix("Value error, ").split())
    return text or type(error).__name__


def _fields(flags: Sequence[str], model_path: str) -> dict[str, Any]:
    for flag in MODEL:
        if any(given == flag or given.startswith(f"{flag}=") for given in flags):
            fix = "the flags themselves" if flag == "--config" else "the model as --model-config"
            raise InputError(f"{flag} is given to vllm; give {fix} instead")
    with refusals():
        parsed = _serve_parser().parse_args(["--model", model_path, *flags])
        if tag := getattr(parsed, "model_tag", None):
            raise InputError(
                f"{one_line(tag)!r} is no flag of vllm's; give the model as --model-config instead"
            )
        args = AsyncEngineArgs.from_cli_args(parsed)
    known = {name: getattr(args, name) for name in EngineArgs.__dataclass_fields__}
    chosen = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,  # requests are tokens
        "language_model_only": True,
        "distributed_executor_backend": SimulatedExecutor,
    }
    return known | {name: value for name, value in chosen.items() if name in known}


def _serve_parser() -> _Parser:
    """Of all flags of `vllm serve`; those of its front end have no effect here."""
    parser = _Parser(add_help=False)
    for name in PARSERS:
        if util.find_spec(name.rpartition(".")[0]) is not None and util.find_spec(name) is not None:
            import_module(name).make_arg_parser(parser)
            return parser
    AsyncEngineArgs.add_cli_args(parser)
    return parser


def _policy(config: Any) -> str:
    """What orders the waiting queue: a class that the flags name, or vLLM's --scheduling-policy."""
    scheduler = config.scheduler_config.scheduler_cls
    if scheduler is None:
        return str(config.scheduler_config.policy)
    if scheduler == ROUTING_PREFIX:
        return POLICY
    return str(scheduler)


def _require_routing_prefix(fields: dict[str, Any]) -> None:
    try:
        arguments.check(make_config(fields))
    except InputError as error:
        raise InputError(f"{error}; or leave out the runs with it: --runs baseline,decoupled,lbch") from None
