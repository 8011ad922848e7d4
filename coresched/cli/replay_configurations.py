"""`--configuration` of `coresched replay`, and what scheduling options come to."""

import argparse
import re
import shlex
from typing import TYPE_CHECKING, NoReturn

from coresched.cli.parser import CommandParser
from coresched.cli.replay_options import add_scheduling_options
from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.lab.replay.plan import ReplaySettings
    from coresched.lab.replay.service import Service

ONLY = "run"
"""The name of the configuration that is repeated where none is given."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class _ConfigurationParser(CommandParser):
    """The command's scheduling options and no others; a mistake in them is one in the configuration."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}")


def configurations_of(args: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """The command's arguments for each configuration, with its own scheduling options over them.

    Raises InputError naming the configuration.
    """
    if args.alternate and (args.repeat == 1 or len(args.configurations) < 2):
        raise InputError("--alternate is for several --configuration with --repeat 2 or more; add them")
    if not args.configurations:
        if args.repeat > 1:
            _check_series(args)
        return {ONLY: args}
    _check_series(args)
    found: dict[str, argparse.Namespace] = {}
    for text in args.configurations:
        name, equals, options = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise InputError(
                f"--configuration {text!r} must be NAME='OPTIONS', with a NAME of at most 40 letters, "
                "digits, dots, _ and -, the first a letter or digit"
            )
        if name in found:
            raise InputError(f"--configuration {name!r} is given twice; give each its own name")
        where = f"--configuration {name!r}"
        parser = _ConfigurationParser(prog=where, add_help=False)
        add_scheduling_options(parser)
        try:
            words = shlex.split(options)
        except ValueError as error:
            raise InputError(f"{where}: {options!r} cannot be split into options: {error}") from None
        found[name], unknown = parser.parse_known_args(words, argparse.Namespace(**vars(args)))
        if unknown:
            raise InputError(
                f"{where}: {' '.join(unknown)} is no scheduling option; what else there is holds for all "
                "runs, so give it to the command"
            )
        try:
            settings_of(found[name])
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    return found


def _check_series(args: argparse.Namespace) -> None:
    if args.against is not None:
        raise InputError("--against is for one run; leave it out, and use `coresched report` on both folders")
    if not args.configurations:
        settings_of(args)


def settings_of(args: argparse.Namespace) -> "ReplaySettings":
    """Raises InputError for options that do not go together."""
    from coresched.lab.replay.plan import ReplaySettings

    if args.sample_concurrency is None:
        raise InputError("--sample-concurrency is missing; give C_S, the number of samples admitted at once")
    if args.service is None:
        for name in ("batch", "ca", "certificate", "key"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} is for a batch at a service; add --service, or leave it out")
    elif (args.load_bound is not None and args.router != "gateway") or args.router == "consistent-hash":
        named = "--router consistent-hash" if args.router == "consistent-hash" else "--load-bound"
        raise InputError(
            f"{named} is a matter of the service; give `coresched serve` a --load-bound (a large one leaves "
            "each trajectory at home)"
        )
    if args.load_bound is not None and args.router in ("round-robin", "consistent-hash"):
        raise InputError(
            f"--load-bound is for --router lbch and gateway; {args.router} has no bound, so leave it out"
        )
    return ReplaySettings(
        sample_concurrency=args.sample_concurrency,
        environment_concurrency=args.environment_concurrency,
        environment_policy=args.environment_policy,
        router=args.router,
        load_bound=args.load_bound or 1.25,
        band_s=args.band_s,
        bucket_s=args.bucket_s,
        speed=args.speed,
        labelled=not args.no_labels,
        patience_s=args.patience_s,
        request_timeout_s=args.request_timeout_s,
    )


def service_of(args: argparse.Namespace, batch: str) -> "Service | None":
    """The service that admits and routes, with the batch's name unless --batch says another."""
    from coresched.lab.replay.service import Service

    if args.service is None:
        return None
    return Service(args.service, args.batch or batch, args.ca, args.certificate, args.key)
