"""`python -m coresched_simdevice.fleet FD`: the template of SGLang's engines, which serves the socket FD."""

import sys
from typing import Any

from coresched_engine.fleet.template import serve_template
from coresched_engine.fleet.wire import Parse, Parsed

from coresched.errors import InputError
from coresched_simdevice.fleet.engine import make_engine


def load(message: Parse) -> tuple[dict[str, Any], Parsed]:
    from coresched_simdevice.fleet.arguments import parse_flags
    from coresched_simdevice.virtual.boot import load_sglang

    load_sglang()
    given, parsed = parse_flags(message.flags, message.model_path)
    if lacking := [policy for policy in message.policies if policy not in parsed.policies]:
        raise InputError(
            f"SGLang {parsed.version} does not take --schedule-policy {lacking[0]}; coresched doctor says why"
        )
    from sglang.srt.models.registry import import_model_classes

    # Every engine would do this, for half of what is left of its boot.
    import_model_classes("sglang.srt.models")
    return given, parsed


if __name__ == "__main__":
    sys.exit(serve_template(int(sys.argv[1]), load, make_engine))
