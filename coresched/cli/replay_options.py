"""The options of `coresched replay`."""

import argparse
from pathlib import Path

from coresched.cli.connection import add_tls_options
from coresched.cli.options import add_caas_options
from coresched.cli.parser import CommandParser, add_command, count, integer, number


def add_options(commands: "argparse._SubParsersAction[CommandParser]") -> CommandParser:
    """The command with all it takes."""
    parser = add_command(
        commands,
        "replay",
        summary="run recorded trajectories against live engines, and measure",
        description="Send every turn of the recorded trajectories to live endpoints: the recorded number of\n"
        "prompt and output tokens, then a pause as long as the recorded environment stage. The\n"
        "prompt of a turn is the one before it, the reply that came, and as many tokens as the\n"
        "environment answered. Writes a folder with every event and the metrics. Ctrl-C ends it,\n"
        "and what was measured by then is kept.",
        example="coresched replay traces.jsonl --endpoint http://127.0.0.1:30000 \\\n"
        "    --endpoint http://127.0.0.1:30001 --sample-concurrency 48 \\\n"
        "    --environment-concurrency 16",
    )
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="trajectories: .jsonl, .jsonl.gz, .jsonl.zst"
    )
    _add_endpoint_options(parser)
    add_scheduling_options(parser)
    _add_series_options(parser)
    prompts = parser.add_argument_group("the prompts")
    prompts.add_argument(
        "--seed",
        type=integer,
        default=0,
        metavar="N",
        help="of the token ids; 0 keeps the trace's order, others shuffle it and the hash placement "
        "(default %(default)s)",
    )
    prompts.add_argument(
        "--token-ids",
        type=_span,
        default=(1000, 30000),
        metavar="LOW:HIGH",
        help="prompts have token ids from LOW up to, not including, HIGH; keep special tokens out "
        "(default 1000:30000)",
    )
    prompts.add_argument(
        "--absent-environment-s",
        type=number(at_least=0),
        metavar="S",
        help="assume this duration where a trace does not have one (default: refuse the trace)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="new folder for run.json, events.jsonl, summary.json, or with several runs for a folder of each "
        "and comparison.json (default coresched-replay-DATE-TIME)",
    )
    output.add_argument(
        "--against", type=Path, metavar="FOLDER", help="an earlier replay of the same prompts to compare with"
    )
    output.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def _add_endpoint_options(parser: CommandParser) -> None:
    endpoints = parser.add_argument_group("the endpoints")
    endpoints.add_argument(
        "--endpoint",
        action="append",
        required=True,
        dest="endpoints",
        metavar="[NAME=]URL",
        help="base URL of an engine, or of a gateway in front of several; NAME is the worker's on the ring "
        "(default: the URL); repeat for each",
    )
    endpoints.add_argument(
        "--protocol",
        choices=["sglang", "openai"],
        help="sglang: POST /generate; openai: POST /v1/completions (default: by what /v1/models says)",
    )
    endpoints.add_argument("--model", metavar="NAME", help="for openai (default: the first in /v1/models)")
    endpoints.add_argument(
        "--speed",
        type=number(above=0),
        default=1.0,
        metavar="X",
        help="the endpoints are simulated and X times as fast as real ones: pauses are divided by X, "
        "measured times multiplied (default %(default)g)",
    )
    endpoints.add_argument(
        "--flush-cache",
        action="store_true",
        help="empty the prefix caches before each run (SGLang: POST /flush_cache; vLLM: POST "
        "/reset_prefix_cache, for which it must run with VLLM_SERVER_DEV_MODE=1)",
    )
    endpoints.add_argument(
        "--warm-up",
        type=count,
        default=0,
        metavar="N",
        help="send N short requests to each endpoint before the clock of each run starts, and before "
        "--flush-cache (default: none)",
    )
    endpoints.add_argument(
        "--patience-s",
        type=number(at_least=0),
        default=60.0,
        metavar="S",
        help="how long a turn is tried again when endpoints fail; then the replay ends (default %(default)g)",
    )
    endpoints.add_argument(
        "--request-timeout-s",
        type=number(above=0),
        default=3600.0,
        metavar="S",
        help="a request that takes longer has failed (default %(default)g)",
    )


def add_scheduling_options(parser: CommandParser) -> None:
    """Those that configurations of one command may differ in."""
    policy = parser.add_argument_group("the scheduling")
    policy.add_argument(
        "--sample-concurrency",
        type=count,
        metavar="C_S",
        help="samples admitted at once; required, here or in each --configuration",
    )
    policy.add_argument(
        "--environment-concurrency",
        type=count,
        metavar="C_E",
        help="environment stages at once (default: no limit)",
    )
    policy.add_argument(
        "--environment-policy",
        choices=["caas", "fcfs"],
        default="caas",
        help="order in which environment stages get slots (default %(default)s)",
    )
    policy.add_argument(
        "--router",
        choices=["lbch", "consistent-hash", "round-robin", "gateway"],
        default="lbch",
        help="which endpoint a turn goes to; gateway: the one that a `coresched gateway` chooses, which runs "
        "in front of them while the replay does (default %(default)s)",
    )
    policy.add_argument(
        "--no-labels",
        action="store_true",
        help="requests carry no trajectory label, as those of a harness that knows none; an engine with "
        "routing-prefix then serves them first come, first served",
    )
    policy.add_argument(
        "--load-bound", type=number(at_least=1), metavar="ALPHA", help="LBCH bound (default 1.25)"
    )
    add_caas_options(policy)
    policy.add_argument(
        "--service",
        metavar="HOST:PORT|unix:PATH",
        help="a running `coresched serve` that admits and routes (default: this process does); its token is "
        "that of CORESCHED_TOKEN",
    )
    policy.add_argument("--batch", metavar="NAME", help="the batch's name there (default: the folder's)")
    add_tls_options(policy)


def _add_series_options(parser: CommandParser) -> None:
    series = parser.add_argument_group("several runs")
    series.add_argument(
        "--configuration",
        action="append",
        default=[],
        dest="configurations",
        metavar="NAME='OPTIONS'",
        help="run with these scheduling options over those of the command; repeat for each, the first is the "
        "reference",
    )
    series.add_argument(
        "--repeat",
        type=count,
        default=1,
        metavar="N",
        help="run each N times, and show medians and spread (default %(default)s)",
    )
    series.add_argument(
        "--alternate",
        action="store_true",
        help="take turns: A B, then B A, then A B, instead of A A A B B B",
    )


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        span = integer(low), integer(high)
    except argparse.ArgumentTypeError:
        span = 0, 0
    if not 0 <= span[0] < span[1] <= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} must be LOW:HIGH with 0 <= LOW < HIGH <= {2**31}")
    return span
