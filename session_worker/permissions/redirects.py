"""Redirections in tree-sitter's tree, where it sees them otherwise than bash does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

_DELIMITER = re.compile(rb"\\?([A-Za-z_]\w*)|'([A-Za-z_]\w*)'|\"([A-Za-z_]\w*)\"")


def split_words(redirect: Node, words: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The file's name, and the arguments of the command that the tree has put behind it.

    Of `git > /dev/null push` it makes two files. `words` are those directly in `redirect`.
    """
    if redirect.type != "file_redirect":
        return [], list(words) if redirect.type == "heredoc_redirect" else []
    for at in range(1, len(words)):
        if words[at].start_byte != words[at - 1].end_byte:
            return list(words[:at]), list(words[at:])
    return list(words), []


def heredoc_is_certain(redirect: Node, source: bytes) -> bool:
    """Whether bash ends the here-document where the tree does.

    Otherwise commands could pass for its text, or its text for commands.
    """
    parts = {child.type: child for child in redirect.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    if start is None or end is None:
        return False
    found = _DELIMITER.fullmatch(source, start.start_byte, start.end_byte)
    line = source.find(b"\n", start.end_byte)
    inline = [
        child.end_byte
        for child in redirect.children
        if child.type not in ("heredoc_body", "heredoc_end")
    ]
    if found is None or line < 0 or max(inline) > line:
        return False
    delimiter = next(filter(None, found.groups()))
    while line >= 0:
        begin = line + 1
        line = source.find(b"\n", begin)
        content = source[begin:line] if line >= 0 else source[begin:]
        stripped = content.lstrip(b"\t") if "<<-" in parts else content
        if stripped == delimiter:
            return end.start_byte == begin + len(content) - len(stripped)
    return False


def is_quoted(redirect: Node, source: bytes) -> bool:
    """Whether nothing in the here-document is expanded."""
    starts = [child for child in redirect.children if child.type == "heredoc_start"]
    return any(source[start.start_byte : start.start_byte + 1] in b"'\"\\" for start in starts)
