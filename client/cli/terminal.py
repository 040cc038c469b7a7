"""Makes text from sessions safe to show on a terminal. Pure.

Tool output and names are chosen by whoever the agent talks to; unescaped they could retitle the
window, write the clipboard, or overprint what a person is about to approve.
"""

from __future__ import annotations

import re

_SEQUENCES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[ -/]*[0-~]"  # the short ones
    r"|\r(?=\n)"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` without escape sequences; other control characters but \\n and \\t show as escapes.

    So do bidirectional overrides, which reorder what is read, and lone surrogates. A sequence cut
    in two by a chunk boundary shows as text: ugly, but harmless.
    """
    return _CONTROLS.sub(_escape, _SEQUENCES.sub("", text))


def one_line(text: str) -> str:
    """`printable(text)` that stays on its line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
