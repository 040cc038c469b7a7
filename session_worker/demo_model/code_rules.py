"""The rules of the Messages API about tools that code may call (anthropic.md §3.2 and §4).

Called by `rules`; pure. Yields what is wrong with the request's parameters: what must not go
together is documented, the wordings are not, but for the one about schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from session_worker.demo_model.reply import Json

BETAS = {"code_execution_20250825": "advanced-tool-use-2025-11-20"}
"""What a type of code execution wants in `anthropic-beta` before its code may call tools."""


def check_code(body: Json, headers: Mapping[str, str]) -> Iterator[str]:
    tools: list[Json] = body.get("tools", [])
    types = {str(tool.get("type")) for tool in tools}
    betas = headers.get("anthropic-beta", "").split(",")
    callable_tools = [(n, tool) for n, tool in enumerate(tools) if _callers(tool)]
    for n, tool in callable_tools:
        for caller in _callers(tool):
            if caller not in types:
                yield f"tools.{n}.custom.allowed_callers: no tool of type {caller} is provided"
            if (beta := BETAS.get(caller)) and beta not in betas:
                yield f"tools.{n}.custom.allowed_callers: Extra inputs are not permitted"
        if tool.get("strict"):
            yield f"tools.{n}.custom: `strict` tools cannot be called from code"
        schema = tool.get("input_schema")
        if _leads_back(schema, schema, (), set()):
            yield f"tools.{n}.custom.input_schema: Circular $ref detected"
    choice: Json = body.get("tool_choice") or {}
    if callable_tools and choice.get("type") in ("any", "tool"):
        yield "tool_choice: forced tool use is not supported with programmatic tool calling"
    if callable_tools and choice.get("disable_parallel_tool_use"):
        yield "disable_parallel_tool_use is not supported with programmatic tool calling"


def _callers(tool: Json) -> list[str]:
    """The code that may call it."""
    given: list[str] = tool.get("allowed_callers") or []
    return [caller for caller in given if caller != "direct"]


def _leads_back(node: Any, root: Any, way: tuple[str, ...], ended: set[str]) -> bool:
    """Whether a `$ref` below `node` comes, along `way`, to one that was followed before; `ended`
    are those that are known not to."""
    if isinstance(node, list):
        return any(_leads_back(item, root, way, ended) for item in cast("list[Any]", node))
    if not isinstance(node, dict):
        return False
    inside = cast("Json", node)
    reference = inside.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and reference not in ended:
        if reference in way:
            return True
        target = root
        for part in reference.split("/")[1:]:
            target = cast("Json", target).get(part) if isinstance(target, dict) else None
        if _leads_back(target, root, (*way, reference), ended):
            return True
        ended.add(reference)
    return any(_leads_back(value, root, way, ended) for value in inside.values())
