"""What the model is told of a tool's input."""

import json
from enum import Enum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from session_worker.tools.schema import tool_schema
from session_worker.tools.spec import ToolContext, ToolResult, ToolSpec


class Kind(Enum):
    NEAR = "near"
    FAR = "far"


class Item(BaseModel):
    title: str = Field(min_length=1, max_length=9, pattern="x")
    weight: float = Field(0.5, ge=0, lt=1)


class Everything(BaseModel):
    model_config = ConfigDict(title="All of it")

    items: list[Item] = Field(description="things", min_length=1)
    first: Item | None = Field(None, description="the first of them")
    kind: Kind = Kind.NEAR
    mode: Literal["a", "b"] = "a"
    either: int | str | None = None
    table: dict[str, Item] = {}
    place: Path = Path()


async def run(_params: Everything, _ctx: ToolContext) -> ToolResult:
    raise NotImplementedError


def test_a_schema_says_plain_types_with_sorted_keys_and_closed_objects() -> None:
    item = {
        "additionalProperties": False,
        "properties": {
            "title": {"type": "string"},
            "weight": {"default": 0.5, "type": "number"},
        },
        "required": ["title"],
        "type": "object",
    }
    spec = ToolSpec("n", "d", Everything, run, "other", True, str)
    schema = tool_schema(spec)
    assert schema == {
        "name": "n",
        "description": "d",
        "input_schema": {
            "additionalProperties": False,
            "properties": {
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "first": item | {"description": "the first of them"},
                "items": {"description": "things", "items": item, "type": "array"},
                "kind": {"default": "near", "enum": ["near", "far"], "type": "string"},
                "mode": {"default": "a", "enum": ["a", "b"], "type": "string"},
                "place": {"default": ".", "type": "string"},
                "table": {"additionalProperties": item, "default": {}, "type": "object"},
            },
            "required": ["items"],
            "type": "object",
        },
    }
    assert json.dumps(schema) == json.dumps(schema, sort_keys=True)
