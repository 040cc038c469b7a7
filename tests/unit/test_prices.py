"""Every expected value is worked out by hand from the price list of 2026-11-30."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import genai_prices
import pytest

from session_worker.models import DEMO_MODEL, KNOWN
from session_worker.prices import cost_usd
from session_worker.provider import Provider

USAGE = {
    "input_tokens": 1_000,
    "cache_read_input_tokens": 20_000,
    "cache_creation_input_tokens": 3_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 2_000, "ephemeral_1h_input_tokens": 1_000},
    "output_tokens": 500,
}


def cost(
    usage: dict[str, Any],
    model: str = "claude-sonnet-5-5",
    overrides: dict[str, dict[str, float]] | None = None,
    **provider: Any,
) -> float | None:
    return cost_usd(usage, Provider(model, **provider), overrides or {})


def dollars(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        # 1k fresh, 20k read, 2k written for 5 min, 1k for 1 h, 500 out; prices are per million
        ("claude-sonnet-5-5", 0.002 + 0.002 + 0.005 + 0.004 + 0.005),
        ("claude-fable-5-2", 0.008 + 0.004 + 0.020 + 0.016 + 0.020),
        ("claude-fable-5-1", 0.010 + 0.005 + 0.025 + 0.020 + 0.025),
        ("claude-opus-5-5", 0.004 + 0.004 + 0.010 + 0.008 + 0.010),
        ("claude-opus-5", 0.005 + 0.010 + 0.0125 + 0.010 + 0.0125),
        ("claude-haiku-5-5", 0.0001 + 0.0002 + 0.00025 + 0.0002 + 0.00025),
        ("claude-haiku-4-5-20251001", 0.001 + 0.002 + 0.0025 + 0.002 + 0.0025),
    ],
)
def test_each_kind_of_token_has_its_price(model: str, usd: float) -> None:
    assert cost(USAGE, model) == dollars(usd)


def test_cache_writes_without_a_breakdown_are_the_short_ones() -> None:
    assert cost({"input_tokens": 0, "cache_creation_input_tokens": 1_000_000}) == dollars(2.5)


def test_the_second_tier_of_haiku_holds_for_the_whole_request() -> None:
    at = {"input_tokens": 60_000, "cache_read_input_tokens": 40_000, "output_tokens": 1_000}
    assert cost(at, "claude-haiku-5-5") == dollars(0.006 + 0.0004 + 0.0005)
    assert cost(at | {"input_tokens": 60_001}, "claude-haiku-5-5") == dollars(
        0.0300005 + 0.002 + 0.0025
    )


def test_the_parts_of_a_request_count_and_not_their_incomplete_sum() -> None:
    parts = [
        {"type": "compaction", "input_tokens": 100_000, "output_tokens": 2_000},
        {"type": "message", "input_tokens": 5_000, "output_tokens": 100},
    ]
    usage = {"input_tokens": 5_000, "output_tokens": 100, "iterations": parts}
    assert cost(usage) == dollars(0.2 + 0.02 + 0.01 + 0.001)
    # each part is a request of its own, so the tier does not see their sum
    assert cost(usage, "claude-haiku-5-5") == dollars(0.010 + 0.001 + 0.0005 + 0.00005)
    assert cost(usage | {"iterations": []}) == dollars(0.01 + 0.001)


def test_a_part_that_another_model_answered_has_that_models_price() -> None:
    advice = {"input_tokens": 1_000, "output_tokens": 1_000, "model": "claude-opus-5-5"}
    usage = {"input_tokens": 0, "iterations": [advice, {"input_tokens": 1_000}]}
    assert cost(usage) == dollars(0.004 + 0.020 + 0.002)
    usage["iterations"] = [advice | {"model": "claude-nobody-1"}, {"input_tokens": 1_000}]
    assert cost(usage) is None


def test_searches_and_american_inference_cost_extra() -> None:
    usage = USAGE | {"server_tool_use": {"web_search_requests": 3}, "inference_geo": "us"}
    assert cost(usage) == dollars(0.018 * 1.1 + 0.03)


def test_prices_of_the_user_win_and_what_they_leave_out_is_the_usual_multiple() -> None:
    given = {"input": 1.0, "output": 4.0}
    own = {"claude-sonnet-5-5": given, "local": given | {"cache_read": 0.0, "cache_write_1h": 9.0}}
    assert cost(USAGE, overrides=own) == dollars(0.001 + 0.002 + 0.0025 + 0.002 + 0.002)
    assert cost(USAGE, "local", own) == dollars(0.001 + 0 + 0.0025 + 0.009 + 0.002)
    assert cost(USAGE, "claude-sonnet-5-5-20260928", own) == cost(USAGE, overrides=own)


def test_the_cost_of_an_unknown_model_is_null_and_not_zero() -> None:
    assert cost(USAGE, "claude-nobody-1") is None
    assert cost(USAGE, "qwen3-coder", base_url="http://127.0.0.1:11434") is None
    assert cost(USAGE, "gpt-5", base_url="https://gateway.example.org") is None


def test_a_call_that_nobody_counted_has_no_cost() -> None:
    assert cost({}) is None
    assert cost({"input_tokens": None, "output_tokens": None}) == 0


def test_the_demo_model_is_not_sold_under_any_name() -> None:
    for model in (DEMO_MODEL, "claude-sonnet-5-5"):
        assert cost(USAGE, model, demo=True, base_url="http://demo") is None
    own = {DEMO_MODEL: {"input": 1.0, "output": 1.0}}
    assert cost({"input_tokens": 1_000_000}, DEMO_MODEL, own, demo=True) == dollars(1.0)


def test_models_and_sellers_that_are_not_in_the_table_are_in_the_catalogue() -> None:
    # Opus 4.1: 15 in, 75 out, 1.5 read, 18.75 and 30 written
    assert cost(USAGE, "claude-opus-4-1-20250805") == dollars(
        0.015 + 0.030 + 0.0375 + 0.030 + 0.0375
    )
    assert cost(
        {"input_tokens": 10**6}, "deepseek-chat", base_url="https://api.deepseek.com/anthropic"
    )


@pytest.mark.parametrize("model", sorted(KNOWN - {DEMO_MODEL}))
@pytest.mark.parametrize("fresh", [0, 76_000, 76_001, 900_000])
def test_table_and_catalogue_agree(model: str, fresh: int) -> None:
    """When this fails, a price has changed: correct the table and its date."""
    if model == "claude-sonnet-4-5" and fresh > 200_000:
        return  # the catalogue also knows a price for prompts beyond that model's window
    tokens = genai_prices.Usage(
        input_tokens=fresh + 24_000,
        cache_read_tokens=20_000,
        cache_write_tokens=4_000,
        cache_write_1h_tokens=1_000,
        output_tokens=700,
    )
    usage = {
        "input_tokens": fresh,
        "cache_read_input_tokens": 20_000,
        "cache_creation_input_tokens": 4_000,
        "cache_creation": {"ephemeral_1h_input_tokens": 1_000},
        "output_tokens": 700,
    }
    catalogue = genai_prices.calc_price(tokens, model, provider_id="anthropic")
    assert cost(usage, model) == dollars(float(catalogue.total_price))


def test_no_worker_loads_the_catalogue_for_a_model_of_the_table() -> None:
    code = (
        "import sys; from session_worker.prices import cost_usd; "
        "from session_worker.provider import Provider; "
        "cost_usd({'input_tokens': 1}, Provider('claude-sonnet-5-5'), {}); "
        "assert 'genai_prices' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
