"""Whose request AIBrix asks about: the trajectory label, in what of the client's request AIBrix passes on.

Of a client's headers that is `traceparent` alone. Policy attributes are set inside AIBrix's gateway, by code
of its operator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from os import urandom
from typing import Literal

from coresched.core.checks import check_label

LabelSource = Literal["attribute", "trace", "request"]

_TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


def request_label(
    attributes: Mapping[str, str], attribute: str, traceparent: str | None, request_id: str
) -> tuple[str, LabelSource]:
    """The label, and where it was found: the policy attribute of this name, else the trace's id, else the
    request's own id, which makes the request a trajectory of one turn.

    Raises ValueError, which names it, if what was found is no label.
    """
    given = attributes.get(attribute)
    if given is not None:
        return check_label(given, f"spec.policyContext.attributes[{attribute!r}]"), "attribute"
    trace = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if trace is not None and trace[1] != _NO_TRACE:
        return trace[1], "trace"
    return check_label(request_id, "metadata.requestId"), "request"


def traceparent(label: str) -> str:
    """A `traceparent` header for one turn of a trajectory: the trace's id is of the label, the span's random.

    For clients whose requests have none. Not sampled, so that nothing is recorded for its sake. Raises
    TypeError or ValueError if label is not a label.
    """
    trace = blake2b(check_label(label, "label").encode(), digest_size=16).hexdigest()
    return f"00-{trace}-{urandom(8).hex()}-00"
