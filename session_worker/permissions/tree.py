"""The one parser: bash text to tree-sitter's tree, within bounds that do not depend on a clock."""

from __future__ import annotations

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

PARSE_STEPS = 500
"""Of some hundred parser operations each, about 50 ms: `a|a|a|…` takes it quadratic time."""
PARSE_UNCOUNTED_BYTES = 512
"""Up to here the worst takes 2 ms, and counting would cost more than parsing."""
PARSE_CHUNK_BYTES = 4096
"""What a counted parser is given at once; it comes back for the same text now and then."""
HEREDOCS = 16
"""In one command: unfinished ones take the parser quadratic time that it does not count."""

_LANGUAGE = Language(tree_sitter_bash.language())
RUNNING = frozenset({"command_substitution", "process_substitution"})
SUBSTITUTIONS = RUNNING | {"expansion", "arithmetic_expansion"}


def parsed(source: bytes) -> Node | None:
    """The tree's root; None if the parser would take too long."""
    if source.count(b"<<") > HEREDOCS:
        return None
    parser = Parser(_LANGUAGE)
    if len(source) <= PARSE_UNCOUNTED_BYTES:
        return parser.parse(source).root_node
    steps = 0

    def too_many(*_: object) -> bool:
        nonlocal steps
        steps += 1
        return steps > PARSE_STEPS

    def chunk(offset: int, _: object) -> bytes:
        return source[offset : offset + PARSE_CHUNK_BYTES]

    try:
        return parser.parse(chunk, progress_callback=too_many).root_node
    except ValueError:
        return None


def substitutions(node: Node) -> list[Node]:
    """The outermost ones in a word."""
    if node.type in SUBSTITUTIONS:
        return [node]
    return [found for child in node.children for found in substitutions(child)]
