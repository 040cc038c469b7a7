"""The control plane's error tree and its one code table (design §4).

Programs read `data.code`; people read `message` and `data.hint`; nobody matches texts.
"""

from __future__ import annotations

from typing import Any

CODES: dict[str, int] = {
    "parse_error": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "internal_error": -32603,
    "session_not_found": -32010,
    "name_taken": -32011,
    "limit_reached": -32012,
    "start_failed": -32013,
    "timed_out": -32014,
    "shutting_down": -32015,
    "forbidden": -32016,
    "ambiguous_id": -32017,
    "overloaded": -32018,
}


class SidecarError(Exception):
    """A refusal or failure that a caller is meant to see.

    `code` is a key of `CODES`; `hint` tells what to do next; `data` adds members to the
    error's `data` object. Everything in it may cross the wire.
    """

    def __init__(self, code: str, message: str, hint: str, **data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.data = data

    def to_wire(self) -> dict[str, Any]:
        """The JSON-RPC error object: `{code, message, data:{code, hint, …}}`."""
        data = {"code": self.code, "hint": self.hint, **self.data}
        return {"code": CODES[self.code], "message": self.message, "data": data}

    @classmethod
    def from_wire(cls, error: dict[str, Any]) -> SidecarError:
        """The same error on the caller's side; an unknown code becomes `internal_error`."""
        data: dict[str, Any] = dict(error.get("data") or {})
        code = data.pop("code", None)
        if code not in CODES:
            code = next((k for k, n in CODES.items() if n == error.get("code")), "internal_error")
        return cls(code, str(error.get("message", "")), str(data.pop("hint", "")), **data)


class PlaceError(SidecarError):
    """A directory or socket path that we refuse to use; raised before anything is created."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__("forbidden", message, hint)
