"""What is known of each model, in one table. Pure.

State of 2026-11-30: anthropic.md §2.6 and §3.3, tools-and-ux.md §4; what is not there (Opus 4.5,
the 512 tokens of the 5.5 models) is from the models' pages in the API's documentation. Fable 5.2
is taken to be like 5.1. Prices are in `prices`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import urlsplit

DEMO_MODEL = "demo-scripted"


@dataclass(frozen=True)
class ModelFacts:
    """Of one model at one endpoint; as it stands here, of a model that nothing is known of.

    `compaction` is the API's, on demand. `cache_prefix_min`: shorter prefixes are not cached, and
    nobody says so. `caching` and `betas`: whether the endpoint takes cache breakpoints and
    `anthropic-beta` headers.
    """

    context_window: int | None = None
    max_output: int | None = None
    adaptive_thinking: bool = False
    compaction: bool = False
    cache_prefix_min: int | None = None
    caching: bool = False
    betas: bool = False


_NOW = ModelFacts(1_000_000, 128_000, adaptive_thinking=True, compaction=True, cache_prefix_min=512)
_OLD = ModelFacts(200_000, 64_000, cache_prefix_min=4096)
"""Thinks by budget only, which is not used here: the budget form is refused from 4.7 on."""
_MODELS = {
    "claude-fable-5-2": _NOW,
    "claude-fable-5-1": _NOW,
    "claude-fable-5": _NOW,
    "claude-opus-5-5": _NOW,
    "claude-opus-5": _NOW,
    "claude-sonnet-5-5": _NOW,
    "claude-sonnet-5": replace(_NOW, cache_prefix_min=1024),
    "claude-haiku-5-5": _NOW,
    "claude-opus-4-8": replace(_NOW, cache_prefix_min=1024),
    "claude-opus-4-7": replace(_NOW, cache_prefix_min=2048),
    "claude-opus-4-6": replace(_NOW, cache_prefix_min=4096),
    "claude-sonnet-4-6": replace(_NOW, cache_prefix_min=1024),
    "claude-opus-4-5": _OLD,
    "claude-sonnet-4-5": replace(_OLD, cache_prefix_min=1024),
    "claude-haiku-4-5": _OLD,
    DEMO_MODEL: ModelFacts(200_000, cache_prefix_min=0),
}
KNOWN = frozenset(_MODELS)


@cache
def facts(model: str, base_url: str | None = None) -> ModelFacts:
    """`base_url` as the provider has it: null for the API's own address. Asked at every report."""
    hosted = is_hosted(base_url)
    known = _MODELS.get(undated(model))
    if known is None:
        return ModelFacts(caching=hosted)
    return replace(known, compaction=known.compaction and hosted, caching=True, betas=hosted)


def thinking_parameter(of: ModelFacts) -> dict[str, Any] | None:
    """Asked for by name: where the model's default is no display, people see silence."""
    return {"type": "adaptive", "display": "summarized"} if of.adaptive_thinking else None


def is_hosted(base_url: str | None) -> bool:
    """Whether it is Anthropic's own API, and not somebody's who speaks like it."""
    if base_url is None:
        return True
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    return host == "anthropic.com" or host.endswith(".anthropic.com")


def undated(model: str) -> str:
    """`claude-haiku-4-5-20251001` is `claude-haiku-4-5`."""
    return re.sub(r"[-@]\d{8}$", "", model)
