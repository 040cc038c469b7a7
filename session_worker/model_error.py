"""What can go wrong with a model call, in one shape."""

from __future__ import annotations

from sidecar.protocol import bounds


class ModelError(Exception):
    """`kind` is an API error type or one of ours; `message` may be shown to people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message[: bounds.ERROR_TEXT_CHARS]
