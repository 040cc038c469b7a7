"""What of an environment reaches whom. Pure.

Provider keys go to the worker alone; tools get the rest; processes of ours get neither a key nor
anything else that an allow-list does not name (design §11).
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.protocol.process_tree import SESSION_COOKIE

_ALLOWED = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)


def is_provider(name: str) -> bool:
    """True for variables that choose a model or open its door."""
    return name.startswith("ANTHROPIC_") or name == "MODEL_ID"


def base(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the daemon's environment that every process of a session may see."""
    return {k: v for k, v in environ.items() if k in _ALLOWED or k.startswith("LC_")}


def of_our_processes(environ: Mapping[str, str]) -> dict[str, str]:
    """What zygotes, shims and workers are started with; `ps e` shows whose they are."""
    return {**base(environ), **{k: v for k, v in environ.items() if k == "SIDECAR_HOME"}}


def split(
    asked: Mapping[str, str], environ: Mapping[str, str], session_id: str
) -> tuple[dict[str, str], dict[str, str]]:
    """(provider variables, tool environment) of a session.

    `asked` is the request's `env`. Without it the daemon's own provider variables serve; with it
    they do not: one user's key must not pay for a session that brought its own settings.
    """
    source = asked or environ
    provider = {k: v for k, v in source.items() if is_provider(k)}
    tools = {k: v for k, v in asked.items() if not is_provider(k)}
    return provider, {**base(environ), **tools, SESSION_COOKIE: session_id}
