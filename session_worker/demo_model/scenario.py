"""Loads a scenario file: steps that are matched against each request instead of the intents.

    {"v": 1, "name": "hello", "steps": [
      {"match": {"last_user": "(?i)create hello"}, "tps": 60, "reply": [
        {"text": "I will create it."},
        {"tool_use": {"name": "bash", "input": {"command": "touch hello.py"}}}]},
      {"match": {"last_tool": "bash"}, "reply": [{"text": "Done: {{tool_result|first_line}}"}]}]}

The first step whose whole `match` fits answers. `last_user` is a regular expression for a prompt
just given, `last_tool` and `is_error` speak of the newest tool result, `attempt` of a retry.
A reply holds `{"text"}`, `{"thinking"}`, `{"tool_use"}`, any API block with its `type`, or
`{"start", "deltas"}` for a block that travels exactly so. The other fields of a step are those of
`Reply`; `fault` is a kind, `{"kind", "after"}`, `{"status", "headers", "body"}` or "html".
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveInt, ValidationError

from session_worker.demo_model.conversation import Call, Conversation, read
from session_worker.demo_model.reply import (
    Answer,
    ApiError,
    Fault,
    Json,
    Reply,
    Request,
    Script,
    Streamed,
    text,
    thinking,
)

HTML = ApiError(200, body="<!doctype html><title>Sign in</title><h1>Sign in to the network</h1>")
"""What a captive portal or a broken proxy answers."""
TEMPLATE = re.compile(r"\{\{(tool_result|last_user)(\|first_line)?\}\}")


class ScenarioError(ValueError):
    """The file cannot be read or is no scenario; the text says where and why."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Match(Strict):
    last_user: re.Pattern[str] | None = None
    last_tool: str | None = None
    is_error: bool | None = None
    attempt: PositiveInt | None = None


def _fault(value: Any) -> Any:
    if value == "html":
        return HTML
    return {"kind": value} if isinstance(value, str) else value


def _block(value: Json) -> Json | Streamed:
    match value:
        case {"text": str(words), **rest} if not rest:
            return text(words)
        case {"thinking": str(words), **rest} if not rest:
            return thinking(words)
        case {"tool_use": {"name": str(), "input": dict()}, **rest} if not rest:
            return {"type": "tool_use", **value["tool_use"]}
        case {"start": {"type": str()}, **rest} if not rest.keys() - {"deltas"}:
            return Streamed(**value)
        case {"type": str()}:
            return value
        case _:
            raise ValueError(f"no content block: {json.dumps(value)[:200]}")


def _checked(value: Json) -> Json:
    _block(value)
    return value


class Step(Strict):
    match: Match = Match()
    reply: list[Annotated[Json, BeforeValidator(_checked)]] = []
    stop_reason: str = ""
    usage: Json = {}
    start: Json = {}
    deltas: list[Json] = [{}]
    events: list[Json] = []
    tps: float | None = None
    chunk_bytes: PositiveInt | None = None
    fault: Annotated[Fault | ApiError | None, BeforeValidator(_fault)] = None

    def fits(self, talk: Conversation, attempt: int) -> bool:
        """Whether this step answers; a step about a prompt is not one about a tool result."""
        last = _last_call(talk)
        wanted = self.match
        return (
            wanted.attempt in (None, attempt)
            and wanted.last_tool in (None, last.name if last else None)
            and wanted.is_error in (None, last.is_error if last else None)
            and (not wanted.last_user or bool(wanted.last_user.search(talk.prompt)))
            and (not wanted.last_user or not last or wanted.last_tool is not None)
        )

    def answer(self, talk: Conversation) -> Answer:
        """The reply with its templates filled in from the conversation."""
        if isinstance(self.fault, ApiError):
            return self.fault
        last = _last_call(talk)
        names = {"tool_result": last.result if last else "", "last_user": talk.prompt}
        return Reply(
            content=[_block(_filled(block, names)) for block in self.reply],
            fault=self.fault,
            **self.model_dump(include=set(Reply.__annotations__) - {"fault"}),
        )


class Scenario(Strict):
    v: Literal[1]
    name: str = ""
    steps: list[Step]


def load_scenario(path: Path) -> Script:
    """The script of this file, or `ScenarioError`."""
    try:
        scenario = Scenario.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ScenarioError(f"{path}: {error}") from error

    def script(request: Request) -> Answer | None:
        talk = read(request.body)
        fitting = (step for step in scenario.steps if step.fits(talk, request.attempt))
        step = next(fitting, None)
        return step.answer(talk) if step else None

    return script


def _last_call(talk: Conversation) -> Call | None:
    return talk.rounds[-1][-1] if talk.rounds else None


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return TEMPLATE.sub(lambda m: _first_line(names[m[1]]) if m[2] else names[m[1]], value)
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in cast("Json", value).items()}
    if isinstance(value, list):
        return [_filled(item, names) for item in cast("list[Any]", value)]
    return value


def _first_line(words: str) -> str:
    return words.strip().partition("\n")[0]
