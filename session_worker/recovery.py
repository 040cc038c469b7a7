"""What to do about a model call that failed. Pure: the loop acts, waits and counts.

Rules and wordings: anthropic.md §1.4, §1.5, §3 and §5, column "Proposed here". Known wordings are
matched because 400s that can be cured carry no code; a changed wording only means no cure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Literal

from session_worker.model_error import ModelError
from session_worker.turn import StopReason
from sidecar.protocol import bounds

Cure = Literal["pairing", "thinking", "images", "text"]


@dataclass(frozen=True)
class Tried:
    """What one model call has already been through.

    Two facts about the next attempt: `container`, it names one; `code_waits`, code in there waits
    for the results of its calls, so that the request cannot do without.
    """

    request_retries: int = 0
    stream_retries: int = 0
    shortened: bool = False
    compacted: bool = False
    repaired: bool = False
    container_dropped: bool = False
    container: bool = False
    code_waits: bool = False

    @property
    def attempt(self) -> int:
        """The number of the attempt under way, from 1."""
        once = (self.shortened, self.compacted, self.repaired, self.container_dropped)
        return 1 + self.request_retries + self.stream_retries + sum(once)

    def then(self, advice: Advice) -> Tried:
        """This and the advice, once it has been taken."""
        match advice:
            case Retry(discard=True):
                return replace(self, stream_retries=self.stream_retries + 1)
            case Retry():
                return replace(self, request_retries=self.request_retries + 1)
            case Shorten():
                return replace(self, shortened=True)
            case Compact():
                return replace(self, compacted=True)
            case Repair():
                return replace(self, repaired=True)
            case DropContainer():
                return replace(self, container_dropped=True, container=False, code_waits=False)
            case Fail():
                return self


@dataclass(frozen=True)
class Retry:
    """Send the same again after `wait_s`. `discard`: clients forget what they saw of this turn."""

    wait_s: float
    reason: str
    discard: bool


@dataclass(frozen=True)
class Shorten:
    """Send the same with this `max_tokens`."""

    max_tokens: int


@dataclass(frozen=True)
class Compact:
    """Compact the conversation, then send it."""


@dataclass(frozen=True)
class Repair:
    """Repair the history, then send it. `paths` are of images; empty means all of them."""

    what: Cure
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropContainer:
    """The container has expired: send the same without it, and without code that waits there."""


@dataclass(frozen=True)
class Fail:
    """End the run. `message` is for people."""

    stop_reason: StopReason
    kind: str
    message: str


Advice = Retry | Shorten | Compact | Repair | DropContainer | Fail

TLS_ERROR = "tls_error"
"""Kind of a certificate that was not accepted: no retry makes it another one."""
_SPEND_CAPS = frozenset(
    {
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "linked_organization_spend_limit_reached",
    }
)
_TRANSIENT_CODES = frozenset({"ramp_limit_exceeded", "compaction_unavailable"})
_TRANSIENT_STATUS = frozenset({408, 409, 429})
_TRANSIENT_KINDS = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "timeout_error"),
        *("connection_error", "stream_truncated", "protocol_error"),
    }
)
_TOO_LONG = re.compile(r"prompt is too long|maximum context length", re.IGNORECASE)
_NO_ROOM = re.compile(r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)")
_EXPIRED = re.compile(r"container.*(expired|not found|does not exist)", re.IGNORECASE)
_WORDINGS: dict[Cure, re.Pattern[str]] = {
    "thinking": re.compile(
        r"`thinking` or `redacted_thinking` blocks .*cannot be modified"
        r"|Invalid `signature` in `thinking` block"
    ),
    "pairing": re.compile(
        r"`tool_use` ids were found without `tool_result` blocks"
        r"|unexpected `tool_use_id` found in `tool_result` blocks"
        r"|was found without a corresponding `\w+` block"
        r"|`tool_use` ids must be unique"
        r"|each tool_use must have a single result"
        r"|container_id is required when there are pending tool uses"
    ),
    "images": re.compile(
        r"image dimensions exceed max allowed size|image exceeds [\d.]+ MB maximum"
        r"|Could not process image"
    ),
    "text": re.compile(
        r"text content blocks must (be non-empty|contain non-whitespace text)"
        r"|all messages must have non-empty content"
        r"|final assistant content cannot end with trailing whitespace"
        r"|cache_control cannot be set for empty text blocks"
    ),
}
_BLOCK_PATH = re.compile(r"messages\.\d+\.content\.\d+(?:\.content\.\d+)?")


def advise(error: ModelError, tried: Tried, jitter: float) -> Advice:
    """`jitter` is random in [0, 1]: the part of the pause that is waited."""
    if error.code and error.code.startswith("compaction_") and not _transient(error):
        return _fail(error)  # its wordings resemble those of a broken history
    if cure := _cure(error, tried):
        return cure
    if not _transient(error):
        return _fail(error)
    dropped = _broke_off(error)
    done, most = (
        (tried.stream_retries, bounds.MODEL_STREAM_RETRIES)
        if dropped
        else (tried.request_retries, bounds.MODEL_REQUEST_RETRIES)
    )
    asked = error.retry_after_s or 0.0
    if asked > bounds.MODEL_RETRY_AFTER_MAX_S:
        return _fail(error, f"the server asks to wait {_duration(asked)} before the next try")
    if done >= most:
        return _fail(error, f"given up after {done} retries")
    pause = min(bounds.MODEL_RETRY_FIRST_S * 2**done, bounds.MODEL_RETRY_MAX_S)
    return Retry(max(asked, pause * jitter), error.kind, dropped)


def _cure(error: ModelError, tried: Tried) -> Advice | None:
    """What makes the next request another one than that which was refused."""
    container = tried.container and not tried.container_dropped
    if error.kind == "http_500" and container and not tried.code_waits and tried.request_retries:
        return DropContainer()  # an expired one may also end in a 500 that says nothing, each time
    if error.status not in (400, 404, 413) and error.kind != "invalid_request_error":
        return None
    if room := _NO_ROOM.search(error.message):
        left = int(room[3]) - int(room[1])
        if left >= bounds.ANSWER_TOKENS_MIN and not tried.shortened:
            return Shorten(left)
    if room or _TOO_LONG.search(error.message):
        if tried.compacted:
            return Fail(StopReason.CONTEXT_LIMIT, error.kind, error.message)
        return Compact()
    if tried.repaired or tried.container_dropped:
        return None  # a second refusal is final
    if container and _EXPIRED.search(error.message):
        return DropContainer()
    if error.code == "image_dimensions_too_large" or error.status == 413:
        return Repair("images", _image_paths(error))
    for what, wording in _WORDINGS.items():
        if wording.search(error.message):
            return Repair(what, _image_paths(error) if what == "images" else ())
    return None


def _image_paths(error: ModelError) -> tuple[str, ...]:
    match error.details:
        case {"paths": [*given]}:
            return tuple(map(str, given))
        case _:
            return tuple(_BLOCK_PATH.findall(error.message))


def _transient(error: ModelError) -> bool:
    """Whether the same request may succeed later."""
    if error.kind == TLS_ERROR or error.code in _SPEND_CAPS:
        return False
    if error.should_retry is not None:
        return error.should_retry
    if error.code in _TRANSIENT_CODES:
        return True
    if error.status is None or error.status == 200:
        return error.kind in _TRANSIENT_KINDS
    return error.status >= 500 or error.status in _TRANSIENT_STATUS


def _broke_off(error: ModelError) -> bool:
    """Whether an answer had begun, and not merely the request failed."""
    ours = ("stream_truncated", "protocol_error")
    return error.streamed or error.status == 200 or error.kind in ours


def _fail(error: ModelError, why: str = "") -> Fail:
    message = f"{error.message} ({why})" if why else error.message
    return Fail(StopReason.ERROR, error.kind, message)


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How long the server asks to wait; null when it does not, or not intelligibly.

    `now` is a time since the epoch, for the form that is a date. Names are lower case, or the
    mapping ignores case.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if math.isfinite(wait_s):
            return max(0.0, wait_s)
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, aware.timestamp() - now)
