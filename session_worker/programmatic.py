"""Programmatic tool calling, as a session's tools offer it: who may be called from code. Pure.

The API runs the model's code and asks for the calls that it makes (anthropic.md §3.2). One tool
that it does not let code call fails every request of the session, so what cannot be seen to be
fine is left to direct calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast
from urllib.parse import unquote

CODE_EXECUTION = "code_execution"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")

Tool = dict[str, Any]


def with_code(tools: Sequence[Tool], code_type: str) -> list[Tool]:
    """`tools` behind the code execution tool of that type, each that may be open to its code."""
    code: Tool = {"type": code_type, "name": CODE_EXECUTION}
    return [
        code,
        *(
            tool | {"allowed_callers": [code_type]} if may_be_called(tool) else tool
            for tool in tools
        ),
    ]


def may_be_called(tool: Mapping[str, Any]) -> bool:
    """Whether the API lets code call it: a client tool, not `strict`, its schema not recursive.

    Toolsets of the MCP connector and tools of the server have a `type` of their own.
    """
    is_ours = tool.get("type", "custom") == "custom" and "input_schema" in tool
    return is_ours and not tool.get("strict") and not is_recursive(tool["input_schema"])


def is_recursive(schema: object) -> bool:
    """Whether a reference in a schema leads back to where it stands, or may do so.

    `schema` is JSON, of any depth. References to other documents, to nowhere, and below an `$id`,
    which gives them another base, are not followed: they may.
    """
    nodes = list(_nodes(schema))
    objects = [cast("Tool", node) for node in nodes if isinstance(node, dict)]
    anchors = {node[key]: node for node in objects for key in _ANCHORS if _is_text(node.get(key))}
    leads_to = {id(node): [id(child) for child in _children(node)] for node in nodes}
    based = any(_is_text(node.get("$id")) for node in objects)
    for node in objects:
        for reference in (node[key] for key in _REFERENCES if _is_text(node.get(key))):
            target = None if based else _target(reference, schema, anchors)
            if target is None:
                return True
            leads_to[id(node)].append(id(target))
    try:
        TopologicalSorter(leads_to).prepare()
    except CycleError:
        return True
    return False


def _nodes(root: object) -> Iterator[object]:
    """All objects and lists of a JSON value."""
    waiting = _children([root])
    while waiting:
        yield (node := waiting.pop())
        waiting += _children(node)


def _children(node: object) -> list[object]:
    inside = cast("Tool", node).values() if isinstance(node, dict) else cast("list[object]", node)
    return [child for child in inside if _has_inside(child)]


def _target(reference: str, root: object, anchors: Mapping[str, object]) -> object | None:
    """What it refers to in this document: an object or a list, or None."""
    document, _, fragment = reference.partition("#")
    if document:
        return None
    if fragment and not fragment.startswith("/"):
        return anchors.get(fragment)
    node = root
    for part in unquote(fragment).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        match node:
            case dict():
                node = cast("Tool", node).get(key)
            case list() if key.isascii() and key.isdecimal():
                node = next(iter(cast("list[object]", node)[int(key) :]), None)
            case _:
                return None
    return node if _has_inside(node) else None


def _has_inside(value: object) -> bool:
    return isinstance(value, dict | list)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
