"""What can go wrong with a model call, in one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.protocol import bounds


class ModelError(Exception):
    """`kind` is an API error type or one of ours; `message` may be shown to people.

    `status` is the answer's, 200 for a stream that broke off; null when none came, and for what an
    event said. `code` is the API's `error_code`, `details` what stands beside it. The server's own
    wish is `retry_after_s` and `should_retry`. `streamed`: `message_start` had been seen, so
    clients may have been shown something; whoever reads the stream says so.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
        streamed: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message[: bounds.ERROR_TEXT_CHARS]
        self.status = status
        self.code = code
        self.details = details
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry
        self.streamed = streamed

    def conceal(self, secrets: Sequence[str]) -> None:
        """Take them out of what people are shown: an answer may quote what it refuses."""
        for secret in secrets:
            self.message = self.message.replace(secret, "***")
        self.args = (self.message,)
