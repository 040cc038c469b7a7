"""How many tokens of every call are system prompt and tools: the part that never grows.

Asked of the API once per worker, beside its work; until it has answered, and where nobody counts,
the size in bytes serves, set right by what the first call was found to have.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from session_worker.model import Model
from session_worker.model_error import ModelError
from session_worker.request import RequestWriter
from sidecar.protocol import bounds

log = logging.getLogger(__name__)


class Prefix:
    """`tokens` is the best that is known."""

    def __init__(self, writer: RequestWriter) -> None:
        self._writer = writer
        self._measured = False
        self.tokens = round(writer.prefix_bytes / bounds.COMPACTION_BYTES_PER_TOKEN)

    async def count(self, model: Model, betas: Sequence[str] = ()) -> None:
        """Ask the API. An endpoint that cannot count leaves the estimate."""
        try:
            self.tokens = await model.count_tokens(self._writer.prefix_request(), betas)
            self._measured = True
        except ModelError as error:
            log.info("the prefix is estimated: %s", error)

    def calibrate(self, total_tokens: int, total_bytes: int) -> None:
        """By a whole call, which has as many bytes to a token as its prefix.

        Once: the prefix is the same in every call, and so is what is said of it.
        """
        if total_tokens and not self._measured:
            self.tokens = round(self._writer.prefix_bytes * total_tokens / total_bytes)
            self._measured = True
