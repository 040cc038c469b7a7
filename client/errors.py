"""What can go wrong on the way to the daemon or to a session's endpoint.

Their codes never cross a wire, so they are not in `sidecar.protocol.errors.CODES`.
"""

from __future__ import annotations

from sidecar.protocol.errors import SidecarError


class Unreachable(SidecarError):
    """Nobody answers at a socket of ours; nothing was sent."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__("unreachable", message, hint)


class ConnectionLost(SidecarError):
    """The peer went away; whether it acted on a request that was under way is unknown."""

    def __init__(self, message: str, hint: str = "sidecarctl daemon status") -> None:
        super().__init__("connection_lost", message, hint)


class EndpointRefusal(SidecarError):
    """A session's endpoint answered with an HTTP error; `code` is the endpoint's own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        ours = status in (400, 422)
        hint = "sidecarctl --help" if ours else "sidecarctl session ls -a"
        super().__init__(code, message, hint, status=status)
        self.status = status


class UsageError(SidecarError):
    """The caller asked for something that cannot be meant."""

    def __init__(self, message: str, hint: str = "sidecarctl --help") -> None:
        super().__init__("usage", message, hint)
