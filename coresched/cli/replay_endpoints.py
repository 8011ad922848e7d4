"""`--endpoint` of `coresched replay`."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.lab.replay.endpoint import Endpoint


def endpoints_of(given: list[str]) -> "list[Endpoint]":
    """Each by its name and URL. Raises InputError for one that is none, or is there twice."""
    from coresched.core.checks import check_label
    from coresched.lab.replay.endpoint import Endpoint

    endpoints: list[Endpoint] = []
    for text in given:
        before, scheme, rest = text.partition("://")
        name, equals, kind = before.rpartition("=")
        url = f"{kind}{scheme}{rest}".rstrip("/")
        try:
            parts = urlsplit(url)
            usable = (
                parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
            )
            _ = parts.port  # raises for one that is none
        except ValueError:
            usable = False
        if not usable:
            raise InputError(
                f"--endpoint {text!r} must be [NAME=]URL, such as http://127.0.0.1:30000 or w0=http://host:30000"
            )
        try:
            check_label(name if equals else url, f"--endpoint {text!r}: the name")
        except ValueError as error:
            raise InputError(str(error)) from None
        endpoints.append(Endpoint(name if equals else url, url))
        for field in ("name", "url"):
            if [getattr(one, field) for one in endpoints].count(getattr(endpoints[-1], field)) > 1:
                raise InputError(f"--endpoint {text!r} has the {field} of another one; give each once")
    return endpoints
