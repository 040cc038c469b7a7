"""Text of others inside text of ours: where it begins, where it ends, whose it is. Pure."""

from __future__ import annotations

import html

from session_worker.tools.truncate import clean


def tagged(tag: str, text: str, **attributes: str) -> str:
    """`text` between tags that it cannot close itself."""
    given = "".join(f' {name}="{html.escape(one_line(at))}"' for name, at in attributes.items())
    inner = text.replace(f"</{tag}", f"<\\/{tag}")
    return f"<{tag}{given}>\n{inner}\n</{tag}>"


def one_line(text: str) -> str:
    """Names and the like, which may hold anything, where a new line would be a new fact."""
    return " ".join(clean(text).split())
