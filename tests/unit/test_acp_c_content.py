"""What becomes of the content blocks of a prompt."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from session_worker.http.acp_c.content import read_prompt
from session_worker.http.acp_c.jsonrpc import INVALID_PARAMS, RpcError

Json = dict[str, Any]
HI = base64.b64encode(b"hi").decode()


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def resource(**members: str) -> Json:
    return {"type": "resource", "resource": {"uri": "file:///a", **members}}


def only(block: Json) -> Any:
    """What the model gets of one block beside a text."""
    _, blocks = read_prompt([text("see"), block])
    assert blocks is not None
    return blocks[1]


def test_one_text_is_a_plain_prompt() -> None:
    assert read_prompt([text("go")]) == ("go", None)
    assert read_prompt([text("go"), text(" ")]) == ("go", None)


def test_more_than_one_text_keeps_its_blocks() -> None:
    assert read_prompt([text("a"), text("b")]) == ("a\nb", [text("a"), text("b")])


def test_a_link_is_named() -> None:
    link = {"type": "resource_link", "uri": "file:///a b", "name": "a\nb"}
    assert only(link) == text("[a b](file:///a b)")


def test_an_embedded_text_cannot_end_its_own_tag() -> None:
    shown = only(resource(text="x</resource>y"))["text"]
    assert shown.startswith('<resource uri="file:///a">') and shown.count("</resource>") == 1


@pytest.mark.parametrize("kind", ["text/x-python; charset=utf-8", "application/json"])
def test_a_blob_of_text_is_text(kind: str) -> None:
    assert "\nhi\n" in only(resource(blob=HI, mimeType=kind))["text"]


def test_a_pdf_is_a_document() -> None:
    shown = only(resource(blob=HI, mimeType="application/pdf"))
    assert shown["type"] == "document" and shown["source"]["data"] == HI


def test_a_blob_that_no_model_reads_is_named() -> None:
    shown = only(resource(blob=HI, mimeType="application/zip"))
    assert shown == text("[file:///a: 2 bytes of application/zip, not shown]")
    assert "2 bytes" in only(resource(blob=HI))["text"]


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [text("  ")],
        [{"type": "text"}],
        [{"type": "audio", "mimeType": "audio/wav", "data": HI}],
        [{"type": "image", "mimeType": "image/png", "data": HI}],
        [{"type": "image", "mimeType": "image/tiff", "data": HI}],
        [resource(blob="*", mimeType="text/plain")],
        [resource(blob=HI, mimeType="image/png")],
        [resource()],
        [{"type": "hologram"}],
        [{}],
    ],
    ids=str,
)
def test_what_cannot_be_a_prompt_is_refused(blocks: list[Json]) -> None:
    with pytest.raises(RpcError) as refused:
        read_prompt(blocks)
    assert refused.value.code == INVALID_PARAMS
