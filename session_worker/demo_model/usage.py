"""Counts tokens by length and plays the prompt cache, so that growth charts are true in shape.

Used by the server. As at the API nothing is cached without `cache_control`; unlike there a
prefix has no minimum length, because demo conversations are short.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_worker.demo_model.conversation import Segment
from session_worker.demo_model.reply import Json
from session_worker.demo_model.wire import CHARS_PER_TOKEN

TTL_S = {"5m": 300.0, "1h": 3600.0}
LOOKBACK = 20
"""Blocks before an anchor in which the API looks for an earlier entry (anthropic.md §3.4)."""
CACHE_ENTRIES = 1024
"""Prefixes remembered: four anchors a call, hundreds of calls; the oldest go first."""

PromptCache = dict[str, float]
"""When each cached prefix, by digest, runs out."""


def input_tokens(pieces: Sequence[Segment]) -> int:
    """Tokens of a request or of a prefix of it."""
    return sum(piece.chars for piece in pieces) // CHARS_PER_TOKEN


def charge(
    pieces: Sequence[Segment], automatic: str | None, cache: PromptCache, now: float
) -> Json:
    """The input side of `usage` for one call; the cache learns its anchored prefixes.

    `automatic` is the ttl of a top-level `cache_control`, which anchors the last block.
    """
    anchors = {index: piece.ttl for index, piece in enumerate(pieces) if piece.ttl}
    if automatic and pieces:
        anchors.setdefault(len(pieces) - 1, automatic)
    hit = _hit(pieces, list(anchors), cache, now)
    read = input_tokens(pieces[: hit + 1])
    written = dict.fromkeys(TTL_S, 0)
    counted = read
    for index, ttl in anchors.items():
        prefix = input_tokens(pieces[: index + 1])
        written[ttl] += max(0, prefix - counted)
        counted = max(counted, prefix)
        _remember(cache, pieces[index].digest, now + TTL_S[ttl])
    return {
        "input_tokens": input_tokens(pieces) - counted,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": sum(written.values()),
        "cache_creation": {f"ephemeral_{ttl}_input_tokens": n for ttl, n in written.items()},
        "service_tier": "standard",
    }


def _hit(pieces: Sequence[Segment], anchors: list[int], cache: PromptCache, now: float) -> int:
    """The last block of the longest live prefix an anchor can see, or -1."""
    for anchor in reversed(anchors):
        for index in range(anchor, max(-1, anchor - LOOKBACK), -1):
            if cache.get(pieces[index].digest, now) > now:
                return index
    return -1


def _remember(cache: PromptCache, digest: str, expiry: float) -> None:
    cache.pop(digest, None)
    cache[digest] = expiry
    while len(cache) > CACHE_ENTRIES:
        del cache[next(iter(cache))]
