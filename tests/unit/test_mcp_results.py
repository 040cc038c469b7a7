"""What a server offers and answers, as the model reads it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from session_worker.mcp_servers import schemas
from session_worker.mcp_servers.configuration import parse_server
from session_worker.mcp_servers.lines import Lines, TooLong
from session_worker.mcp_servers.offered import offered_tools
from session_worker.mcp_servers.results import to_result
from session_worker.mcp_servers.tail import Tail
from sidecar.protocol import mcp_bounds

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
SOUND = base64.b64encode(b"RIFF....").decode()
TEXT = {"type": "text", "text": "hello"}


class Kept(list[tuple[bytes, str]]):
    def __call__(self, data: bytes, suffix: str) -> str:
        self.append((data, suffix))
        return f"/kept{suffix}"


def content(*blocks: dict[str, Any], **more: Any) -> Any:
    return to_result({"content": list(blocks), **more}, Kept()).content


def test_texts_are_joined() -> None:
    assert content(TEXT, TEXT) == "hello\nhello"


def test_nothing_is_said_to_be_nothing() -> None:
    assert content() == "(no output)"


def test_an_image_stays_one_among_texts() -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert content(TEXT, image) == [TEXT, {"type": "image", "source": source}]


def test_an_image_is_what_its_bytes_are() -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/webp"}
    assert content(image)[0]["source"]["media_type"] == "image/png"


@pytest.mark.parametrize(
    ("raw", "media_type", "suffix"),
    [
        (base64.b64decode(PIXEL) + b"x" * 5_000_000, "image/png", ".png"),
        (b"<svg/>", "image/svg+xml", ".svg"),
        (b"not a png", "image/png", ".png"),
    ],
)
def test_an_image_that_the_model_cannot_see_goes_to_a_file(
    raw: bytes, media_type: str, suffix: str
) -> None:
    kept, data = Kept(), base64.b64encode(raw).decode()
    answer = {"content": [{"type": "image", "data": data, "mimeType": media_type}]}
    assert f"saved to /kept{suffix}" in to_result(answer, kept).content
    assert kept == [(raw, suffix)]


def test_sound_and_blobs_go_to_files_with_an_extension() -> None:
    kept = Kept()
    blob = {"uri": "demo://x", "mimeType": "application/pdf", "blob": SOUND}
    blocks = [
        {"type": "audio", "data": SOUND, "mimeType": "audio/mpeg"},
        {"type": "resource", "resource": blob},
        {"type": "resource", "resource": {"uri": "demo://y", "blob": SOUND}},
    ]
    said = to_result({"content": blocks}, kept).content
    assert [suffix for _, suffix in kept] == [".mp3", ".pdf", ".bin"]
    assert "demo://x" in said and "/kept.pdf" in said


def test_a_blob_that_is_an_image_is_seen() -> None:
    blob = {"uri": "demo://x", "mimeType": "image/png", "blob": PIXEL}
    assert content({"type": "resource", "resource": blob})[0]["type"] == "image"


def test_what_is_not_base64_is_said_to_be_so() -> None:
    assert "not valid base64" in content({"type": "audio", "data": "§", "mimeType": "audio/wav"})


def test_an_embedded_text_comes_with_its_address() -> None:
    resource = {"uri": "file:///a", "mimeType": "text/plain", "text": "inside"}
    assert content({"type": "resource", "resource": resource}) == (
        "[resource file:///a text/plain]\ninside"
    )


def test_a_link_is_described() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "A", "size": 2048}
    assert content(link) == "[resource A file:///a 2KB]"


def test_an_unknown_kind_is_named() -> None:
    assert content({"type": "hologram"}) == "[hologram: cannot be shown]"


@pytest.mark.parametrize("said", ['{"n": 1}', "1"])
def test_structured_content_is_not_repeated(said: str) -> None:
    assert content({"type": "text", "text": said}, structuredContent={"n": 1}) == said


def test_structured_content_that_nobody_said_is_json() -> None:
    assert content(TEXT, structuredContent={"n": 1}) == 'hello\n{"n": 1}'
    assert content(structuredContent=0) == "0"


def test_an_error_keeps_all_of_its_blocks() -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    result = to_result({"content": [TEXT, image], "isError": True}, Kept())
    assert result.is_error and len(result.content) == 2


@pytest.mark.parametrize(
    ("text", "suffix", "recipe"),
    [
        ("line\n" * 30_000, ".txt", "read_file"),
        ("x" * 100_001, ".txt", "cut"),
        (json.dumps(["y" * 99] * 1_100), ".json", "jq"),
    ],
)
def test_a_text_that_is_too_long_is_a_preview_and_a_file(
    text: str, suffix: str, recipe: str
) -> None:
    kept = Kept()
    said = str(to_result({"content": [{"type": "text", "text": text}]}, kept).content)
    assert kept == [(text.encode(), suffix)]
    assert said.startswith(text[:2_000] + "\n…\n[")
    assert f"/kept{suffix}" in said and recipe in said
    assert len(said) < 2_300


def test_a_server_may_raise_the_limit_but_not_beyond_all_bounds() -> None:
    key = "anthropic/maxResultSizeChars"
    long = {"type": "text", "text": "x" * 400_000}
    assert len(content(long, _meta={key: 450_000})) == 400_000
    assert len(to_result({"content": [long]}, Kept(), 450_000).content) == 400_000
    assert len(content(long, long, _meta={key: 10**9})) < 2_300


def test_text_is_made_safe_for_json() -> None:
    assert content({"type": "text", "text": "a\0b\ud800"}) == "a\u2400b\ufffd"


def offer(*tools: dict[str, Any], **settings: Any) -> tuple[list[str], list[str]]:
    entry = parse_server("s", {"command": "x", **settings}, "user")
    offered, problems = offered_tools(
        [{"inputSchema": {}, **tool} for tool in tools], entry.settings
    )
    return list(offered), problems


def test_only_what_is_included_and_not_excluded_is_offered() -> None:
    tools = [{"name": name} for name in ("get_a", "get_b", "put_a")]
    assert offer(*tools)[0] == ["get_a", "get_b", "put_a"]
    assert offer(*tools, include=["get_*"], exclude=["*_b"])[0] == ["get_a"]
    assert offer(*tools, include=[])[0] == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a b": {}}},
        {"type": "object", "properties": 7},
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "description": "x" * 70_000},
    ],
)
def test_a_tool_that_the_api_would_refuse_is_left_out_with_a_reason(schema: Any) -> None:
    names, problems = offer({"name": "bad", "inputSchema": schema}, {"name": "good"})
    assert names == ["good"]
    assert "bad" in problems[0]


def test_a_schema_loses_what_the_api_refuses_at_its_top_only() -> None:
    inner = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    given = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "oneOf": [{}],
        "properties": {"a": inner},
    }
    assert schemas.usable(given) == {"type": "object", "properties": {"a": inner}}


def test_a_misfit_names_the_field() -> None:
    schema = schemas.usable({"properties": {"n": {"type": "integer"}}, "required": ["m"]})
    assert schemas.misfit(schema, {"n": 1, "m": 2}) == ""
    said = schemas.misfit(schema, {"n": "x"})
    assert "n: 'x' is not of type 'integer'" in said and "'m' is a required property" in said


def test_a_reference_out_of_the_schema_leads_nowhere() -> None:
    schema = schemas.usable({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}})
    assert schemas.misfit(schema, {"a": 1}) == ""


@pytest.mark.parametrize(
    ("start", "end", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":"', b'"}', 7),
        (b'{"result":{"id":3,"x":"', b'"},"jsonrpc":"2.0","id":8}', 8),
        (b'{"result":{"x":"', b'","id":3}}', None),
    ],
)
def test_a_line_that_is_too_long_is_told_by_its_id_and_the_next_ones_live(
    start: bytes, end: bytes, id: int | None
) -> None:
    lines = Lines()
    found = [
        *lines.feed(start),
        *lines.feed(b"x" * mcp_bounds.MCP_LINE_BYTES),
        *lines.feed(end + b"\n{}\n["),
    ]
    assert found == [TooLong(id), b"{}"]


def test_only_the_end_of_stderr_is_kept() -> None:
    tail = Tail()
    for number in range(20_000):
        tail.add(b"%d\x1b[31m\n" % number)
    assert len(tail) == mcp_bounds.MCP_STDERR_BYTES
    assert tail.last_lines().splitlines()[-1] == "19999"
