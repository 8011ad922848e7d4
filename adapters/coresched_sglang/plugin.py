"""What SGLang loads in each of its processes: the places where this adapter enters it, and nothing else."""

import logging
from importlib import import_module

from coresched_sglang import arguments
from coresched_sglang.compatibility import missing, residency_missing, sglang_version
from coresched_sglang.names import POLICIES, ROUTING_RESIDENCY

logger = logging.getLogger(__name__)


def register() -> None:
    """Hook into SGLang where it has all that the policies need; else say what it lacks and leave it alone."""
    lacks = missing()
    if lacks:
        logger.warning(
            "coresched: SGLang %s is left unchanged and --schedule-policy %s is not offered: %s",
            sglang_version(),
            ", ".join(POLICIES),
            "; ".join(lacks),
        )
        return
    if lacks := residency_missing():
        logger.info(
            "coresched: --schedule-policy %s is not offered on SGLang %s: %s",
            ROUTING_RESIDENCY,
            sglang_version(),
            "; ".join(lacks),
        )
    hooks = import_module("sglang.srt.plugins.hook_registry")
    register, kinds = hooks.HookRegistry.register, hooks.HookType
    policy = import_module("coresched_sglang.policy")  # its classes derive from SGLang's
    register("sglang.srt.server_args.ServerArgs.add_cli_args", arguments.offer, kinds.AFTER)
    register("sglang.srt.server_args.ServerArgs.check_server_args", arguments.check, kinds.AROUND)
    register("sglang.srt.managers.schedule_policy.SchedulePolicy", policy.OrderedPolicy, kinds.REPLACE)
    register(
        "sglang.srt.managers.scheduler.Scheduler.get_new_batch_prefill", policy.after_prefill, kinds.AFTER
    )
