"""What a person is told of a call that a service did not answer, or answered with a refusal that stays."""

from __future__ import annotations

import grpc

from coresched.errors import InputError

_LASTING = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)


def hint(message: str, *, tls: bool, flag: str = "") -> str:
    """What to do about gRPC's message for a service that cannot be reached, to be put behind it.

    gRPC says the same of a service that is not there and of one that was met with the wrong TLS. `tls`:
    whether the client uses it. `flag`: what goes before the names of the options.
    """
    ca, certificate, key = f"{flag}ca", f"{flag}certificate", f"{flag}key"
    if "WRONG_VERSION_NUMBER" in message:
        return f"; what listens there speaks no TLS: leave out {ca}, {certificate} and {key}"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"; its certificate is not of the CA that is trusted here: correct {ca}"
    if "not in peer certificate" in message:
        return "; its certificate is for another host: use the name in it as the host of the target"
    if "http1.x" in message:
        return "; a web server listens there: correct the port"
    if "Socket closed" in message or "Connection reset" in message:
        if tls:
            return (
                "; it accepts the connection and closes it at once, as a service does that asks for a client "
                f"certificate: give {certificate} and {key} of the CA it knows"
            )
        return (
            "; it accepts the connection and closes it at once, as a service with TLS does: give "
            f"{ca}, and {certificate} and {key} if it asks for them"
        )
    if "resolving" in message:
        return "; correct the host"
    if "failed to connect" in message:
        return "; start `coresched serve` there, or correct the address"
    return ""  # it was reached, and said so itself


def told(target: str, error: grpc.RpcError, *, tls: bool) -> InputError | ConnectionError | None:
    """The line for the user of a command, with the names of its flags; None if the call itself is refused."""
    code: grpc.StatusCode = error.code()
    details: str = error.details() or code.name
    reason = " ".join(details.split())
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return InputError(f"target {target} refuses the call: {reason}; give --token")
    if code in _LASTING:
        return InputError(f"target {target} must be a coresched serve of this version, it refuses: {reason}")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return ConnectionError(f"no answer from {target}: {reason}{hint(reason, tls=tls, flag='--')}")
    return None
