"""Which model a session talks to, and with which credentials. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEMO_MODEL = "demo-scripted"
DEFAULT_MODEL = "claude-sonnet-5-5"

_WINDOW_1M = 1_000_000
_WINDOW_200K = 200_000
CONTEXT_WINDOWS: dict[str, int] = {
    DEMO_MODEL: _WINDOW_200K,
    "claude-fable-5-2": _WINDOW_1M,
    "claude-fable-5-1": _WINDOW_1M,
    "claude-opus-5-5": _WINDOW_1M,
    "claude-opus-5": _WINDOW_1M,
    "claude-sonnet-5-5": _WINDOW_1M,
    "claude-sonnet-5": _WINDOW_1M,
    "claude-haiku-5-5": _WINDOW_1M,
    "claude-sonnet-4-6": _WINDOW_1M,
    "claude-haiku-4-5": _WINDOW_200K,
    "claude-sonnet-4-5": _WINDOW_200K,
}
"""Tokens by model (anthropic.md §2.6, 2026-11); a model that is not here has none we know."""


@dataclass(frozen=True)
class Provider:
    """`base_url` is null for the SDK's own default. The repr never shows a credential."""

    model: str
    demo: bool = False
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)

    @property
    def context_window(self) -> int | None:
        return CONTEXT_WINDOWS.get(self.model)


def choose_provider(env: Mapping[str, str], model: str | None) -> Provider:
    """`model` is the request's. Empty variables count as unset, as `.env` files leave them so.

    Without a key and without a base URL it is the demo model. A key that fails is an error
    later, never a fall-back to it. A base URL alone means a local server that wants no key.
    """
    key, token = env.get("ANTHROPIC_API_KEY") or None, env.get("ANTHROPIC_AUTH_TOKEN") or None
    base_url = env.get("ANTHROPIC_BASE_URL") or None
    wanted = model or env.get("MODEL_ID") or env.get("ANTHROPIC_MODEL")
    if not (key or token or base_url):
        # the address is a name: the client is given a socket instead (`Model.on_socket`)
        return Provider(wanted or DEMO_MODEL, demo=True, base_url="http://demo", auth_token="demo")
    return Provider(
        model=wanted or DEFAULT_MODEL,
        base_url=base_url,
        api_key=key,
        auth_token=token or (None if key else "none"),
    )
