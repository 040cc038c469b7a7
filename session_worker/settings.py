"""What of a session can be chosen while it lives: its permission mode and its model. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from session_worker.models import DEMO_MODEL, KNOWN, is_hosted
from session_worker.provider import Provider
from session_worker.spec import SessionSpec

MODE = "mode"
MODEL = "model"
"""Texts of the `note` records that hold a choice; the last of each counts."""

MODES = {
    "ask": "Ask before anything is changed",
    "accept-edits": "Edit files without asking",
    "plan": "Only read, and describe the rest",
    "auto": "Ask only for what is outside",
    "bypass": "Ask nothing",
}
"""Each permission mode, and what people are told of it."""


def chosen(spec: SessionSpec, records: Iterable[dict[str, Any]]) -> SessionSpec:
    """`spec` with what was chosen since, by a session's transcript."""
    for record in records:
        if record.get("note") == MODE:
            spec = replace(spec, mode=record["mode"])
        elif record.get("note") == MODEL:
            spec = with_model(spec, record["model"])
    return spec


def with_model(spec: SessionSpec, model: str) -> SessionSpec:
    return replace(spec, provider=replace(spec.provider, model=model))


def models(provider: Provider) -> list[str]:
    """What there is to choose: at another server than Anthropic's nobody knows but the server."""
    if provider.demo or not is_hosted(provider.base_url):
        return [provider.model]
    return sorted({provider.model, *KNOWN} - {DEMO_MODEL})


def config_options(mode: str, provider: Provider) -> list[dict[str, Any]]:
    """As ACP-C shows them (acp.md §2.5)."""
    return [
        _select("mode", "Permission mode", "mode", mode, MODES),
        _select("model", "Model", "model", provider.model, {m: m for m in models(provider)}),
    ]


def _select(
    option: str, name: str, category: str, current: str, values: dict[str, str]
) -> dict[str, Any]:
    return {
        "id": option,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": [{"value": value, "name": shown} for value, shown in values.items()],
    }
