"""Whether a call may run, by the session's permission mode. Pure.

This version has no rules and nobody to ask: `plan` refuses what could change anything, the
other modes run what the model asks for, and the session says so in its first event.
"""

from __future__ import annotations

ASKING_MODES = frozenset({"ask", "accept-edits"})
"""Modes that promise a question; until it can be asked, sessions carry `NOTICE`."""

NOTICE = (
    "This version does not ask before a tool runs: the agent can do what your user can. "
    "Use a directory and an account you can afford, or mode 'plan'."
)


def refusal(mode: str, tool: str, *, read_only: bool) -> str | None:
    """The text for the model when the call must not run, else None."""
    if mode == "plan" and not read_only:
        return (
            f"The session is in plan mode, so {tool} was not run: it could change something. "
            "Describe what you would do instead."
        )
    return None
