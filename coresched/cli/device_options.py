"""The options that describe an engine on a simulated device, shared by `sglang-sim` and `simulate`."""

import argparse

from coresched.lab.simulator.model import DEFAULT_MODEL


def add_device_options(group: "argparse._ActionsContainer", *, required: bool) -> None:
    """--model-config, --memory, --weights and --step-times; all None where they are not given."""
    group.add_argument(
        "--model-config",
        required=required,
        metavar="FILE|FOLDER",
        help="the model's config.json, or its folder",
    )
    group.add_argument(
        "--memory", required=required, metavar="SIZE", help="memory of one device (GPU), such as 80GiB"
    )
    group.add_argument(
        "--weights", required=required, metavar="SIZE", help="what the weights take of it, such as 50GiB"
    )
    group.add_argument(
        "--step-times",
        metavar="NAME|FILE",
        help="a worker model, as for coresched worker --model: how long steps take "
        f"(default {DEFAULT_MODEL})",
    )


def device_variables(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """The simulated device's variables for these options, and the options by the variables' names."""
    # Here, so that the other commands start without the adapter.
    from coresched_engine.virtual import device

    options = {
        device.MEMORY: ("--memory", args.memory),
        device.WEIGHTS: ("--weights", args.weights),
        device.STEP_TIMES: ("--step-times", args.step_times or DEFAULT_MODEL),
    }
    return (
        {variable: value for variable, (_, value) in options.items()},
        {variable: flag for variable, (flag, _) in options.items()},
    )
