"""Which model a session talks to, and with which credentials. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from session_worker.models import DEMO_MODEL, ModelFacts, facts

DEFAULT_MODEL = "claude-sonnet-5-5"


@dataclass(frozen=True)
class Provider:
    """`base_url` is null for the SDK's own default. The repr never shows a credential."""

    model: str
    demo: bool = False
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)

    def to_env(self) -> dict[str, str]:
        """The variables from which `choose_provider` makes it again."""
        if self.demo:
            return {}
        found = {
            "ANTHROPIC_API_KEY": self.api_key,
            "ANTHROPIC_AUTH_TOKEN": self.auth_token,
            "ANTHROPIC_BASE_URL": self.base_url,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def facts(self) -> ModelFacts:
        return facts(self.model, self.base_url)


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
