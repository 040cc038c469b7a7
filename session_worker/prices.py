"""What a model call costs, in US dollars. Pure.

A user's own prices win, then the table here, then the catalogue of `genai-prices`: it knows
everything in this table too (a test compares them), but holding it costs a process 14 MB and 0.6 s,
so it is loaded only for a model that is not here. A model without a known price costs null, never
nothing; so does the demo model, which nobody sells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session_worker.models import is_hosted, undated
from session_worker.provider import Provider
from session_worker.result import Tokens, iterations, number

Overrides = Mapping[str, Mapping[str, float]]
"""By model, the arguments of `rates`."""

_SEARCH_USD = 0.01
_US_FACTOR = 1.1
"""For inference that is kept in the United States (`inference_geo`)."""


@dataclass(frozen=True)
class Rates:
    """Dollars for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float


def rates(
    input: float,
    output: float,
    cache_read: float | None = None,
    cache_write_5m: float | None = None,
    cache_write_1h: float | None = None,
) -> Rates:
    """What is not given is the usual multiple of `input`: 0.1, 1.25 and 2."""
    return Rates(
        input,
        output,
        input * 0.1 if cache_read is None else cache_read,
        input * 1.25 if cache_write_5m is None else cache_write_5m,
        input * 2 if cache_write_1h is None else cache_write_1h,
    )


_OPUS = rates(5, 25)
_SONNET_4 = rates(3, 15)
_TABLE = {
    "claude-fable-5-2": rates(8, 40, 0.20),
    "claude-fable-5-1": rates(10, 50, 0.25),
    "claude-fable-5": rates(10, 50),
    "claude-opus-5-5": rates(4, 20, 0.20),
    "claude-opus-5": _OPUS,
    "claude-sonnet-5-5": rates(2, 10, 0.10),
    "claude-sonnet-5": rates(2, 10),
    "claude-haiku-5-5": rates(0.10, 0.50),
    "claude-opus-4-8": _OPUS,
    "claude-opus-4-7": _OPUS,
    "claude-opus-4-6": _OPUS,
    "claude-opus-4-5": _OPUS,
    "claude-sonnet-4-6": _SONNET_4,
    "claude-sonnet-4-5": _SONNET_4,
    "claude-haiku-4-5": rates(1, 5),
}
"""State of 2026-11-30 (anthropic.md §2.6)."""
_LONG_PROMPTS = {"claude-haiku-5-5": (100_000, rates(0.50, 2.50))}
"""Above so many tokens of prompt the whole request has other rates."""


def cost_usd(usage: Mapping[str, Any], provider: Provider, overrides: Overrides) -> float | None:
    """Of one `usage` object of the Messages API.

    The first call for a model that is neither overridden nor in the table may take 0.6 s.
    """
    total = 0.0
    for part in iterations(usage):
        if "input_tokens" not in part:
            return None  # nobody counted
        model = str(part.get("model") or provider.model)
        cost = _tokens_usd(Tokens.of(part), model, provider, overrides)
        if cost is None:
            return None
        total += cost
    if usage.get("inference_geo") == "us":
        total *= _US_FACTOR
    return total + number(usage.get("server_tool_use"), "web_search_requests") * _SEARCH_USD


def _tokens_usd(
    counted: Tokens, model: str, provider: Provider, overrides: Overrides
) -> float | None:
    name = undated(model)
    if own := overrides.get(model) or overrides.get(name):
        return _apply(rates(**own), counted)
    if provider.demo:
        return None
    if name in _TABLE:
        above, long = _LONG_PROMPTS.get(name, (0, None))
        return _apply(long if long and counted.prompt > above else _TABLE[name], counted)
    return _from_catalogue(counted, model, provider.base_url)


def _apply(known: Rates, counted: Tokens) -> float:
    return (
        counted.fresh * known.input
        + counted.cache_read * known.cache_read
        + counted.cache_write_5m * known.cache_write_5m
        + counted.cache_write_1h * known.cache_write_1h
        + counted.output * known.output
    ) / 1_000_000


def _from_catalogue(counted: Tokens, model: str, base_url: str | None) -> float | None:
    hosted = is_hosted(base_url)
    if not hosted and not (base_url or "").startswith("https://"):
        return None  # a server on this machine or in this house sells nothing
    from genai_prices import Usage, calc_price  # here, for it is heavy

    tokens = Usage(
        input_tokens=counted.prompt,
        cache_read_tokens=counted.cache_read,
        cache_write_tokens=counted.cache_write_5m + counted.cache_write_1h,
        cache_write_1h_tokens=counted.cache_write_1h,
        output_tokens=counted.output,
    )
    try:
        if hosted:
            found = calc_price(tokens, model, provider_id="anthropic")
        else:
            found = calc_price(tokens, model, provider_api_url=base_url)
    except (LookupError, ValueError):
        return None
    if found.model_price.input_mtok is None or found.model_price.output_mtok is None:
        return None
    return float(found.total_price)
