"""Handing a prompt or a wish to the core, with its refusals as answers."""

from __future__ import annotations

from typing import Any

from session_worker.core import QueueFull, SessionCore, Stopping
from session_worker.http.errors import HttpError
from session_worker.run import Run
from session_worker.transcript import TranscriptFull
from sidecar.protocol import bounds


def submit(core: SessionCore, prompt: str, **kind: Any) -> Run:
    """`SessionCore.submit`. Raises `HttpError`."""
    try:
        return core.submit(prompt, **kind)
    except QueueFull:
        raise HttpError(
            409, "invalid_input", f"{bounds.PROMPT_QUEUE} prompts already wait; try again later"
        ) from None
    except Stopping:
        raise HttpError(503, "server_error", "the session is ending") from None
    except TranscriptFull as error:
        raise HttpError(507, "server_error", f"the prompt was not accepted: {error}") from None
