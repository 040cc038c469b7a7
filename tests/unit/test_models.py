"""What the worker knows of models, and what it sends because of it."""

from __future__ import annotations

import pytest

from session_worker.demo_model import DEMO_MODEL_ID
from session_worker.models import DEMO_MODEL, KNOWN, ModelFacts, facts, thinking_parameter

HOSTED = [
    None,
    "https://api.anthropic.com",
    "https://api.anthropic.com/v1",
    "https://anthropic.com",
]
FOREIGN = [
    "http://127.0.0.1:11434",
    "https://anthropic.com.example.org",
    "http://demo",
    "https://[",
]
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize("base_url", HOSTED)
def test_the_api_itself_takes_betas_and_compacts(base_url: str | None) -> None:
    assert facts("claude-sonnet-5-5", base_url) == ModelFacts(
        context_window=1_000_000,
        max_output=128_000,
        adaptive_thinking=True,
        compaction=True,
        cache_prefix_min=512,
        caching=True,
        betas=True,
    )


@pytest.mark.parametrize("base_url", FOREIGN)
def test_another_server_gets_no_betas_but_a_known_model_thinks_there_too(base_url: str) -> None:
    known = facts("claude-sonnet-5-5", base_url)
    assert (known.betas, known.compaction, known.caching) == (False, False, True)
    assert known.context_window == 1_000_000
    assert thinking_parameter(known) == ADAPTIVE


@pytest.mark.parametrize("base_url", HOSTED + FOREIGN)
def test_of_an_unknown_model_nothing_is_assumed(base_url: str | None) -> None:
    unknown = facts("qwen3-coder:30b", base_url)
    assert unknown == ModelFacts(caching=base_url in HOSTED)
    assert thinking_parameter(unknown) is None


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5"])
def test_models_that_think_by_budget_only_are_not_asked_to_think(model: str) -> None:
    old = facts(model)
    assert thinking_parameter(old) is None
    assert (old.context_window, old.max_output, old.compaction) == (200_000, 64_000, False)


def test_every_other_claude_thinks_adaptively_and_says_so() -> None:
    old = {"claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5", DEMO_MODEL}
    for model in KNOWN - old:
        assert thinking_parameter(facts(model)) == ADAPTIVE
        assert facts(model).compaction


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-8", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-6", 4096),
        ("claude-haiku-4-5", 4096),
    ],
)
def test_the_shortest_cacheable_prefix_depends_on_the_model(model: str, least: int) -> None:
    assert facts(model).cache_prefix_min == least


def test_a_dated_name_is_the_same_model() -> None:
    assert facts("claude-haiku-4-5-20251001") == facts("claude-haiku-4-5")
    assert facts("claude-sonnet-4-5@20250929") == facts("claude-sonnet-4-5")
    assert facts("claude-sonnet-4-5-2025") == ModelFacts(caching=True)


def test_the_demo_model_caches_any_prefix_and_does_not_think() -> None:
    assert DEMO_MODEL == DEMO_MODEL_ID
    demo = facts(DEMO_MODEL, "http://demo")
    assert (demo.context_window, demo.caching, demo.cache_prefix_min) == (200_000, True, 0)
    assert thinking_parameter(demo) is None
