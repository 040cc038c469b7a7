"""From what a server sends to text that can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.web.html import readable
from session_worker.web.text import kind_of, text_of

URL = "https://example.org/docs/page"


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<title>T</title><h1>A &amp; B</h1><p>one\n two</p>", "T\n\n# A & B\n\none two"),
        ("<p>a<p>b<br>c", "a\n\nb\nc"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd"),
        ('x <a href="../y?a=1&amp;b=2">why</a> z', "x [why](https://example.org/y?a=1&b=2) z"),
        ('<a href="javascript:x">a</a> <a href="#b">b</a> <a name=c>c</a>', "a b c"),
        ("<pre>  a\n   b &lt;c&gt;</pre>", "```\n  a\n   b <c>\n```"),
        ("use <code>x  y</code> now", "use `x y` now"),
        ("<table><tr><th>a</th><td>b</td></tr><tr><td>c</td></tr></table>", "a | b |\nc |"),
        ("a<script>var b = '<p>c';</script>d<STYLE>p{}</STYLE>e<svg/>f", "adef"),
        ("a<!-- <p>b</p> -->c<!doctype x>d<?php e ?>f", "acdf"),
        ("1 < 2 && 3 > 2 <", "1 < 2 && 3 > 2 <"),
        ('<img alt="a cat" src=x><img src=y>', "[image: a cat]"),
        ("<a href=x>one<a href=y>two", "[one](https://example.org/docs/x)"
         "[two](https://example.org/docs/y)"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<script>never closed <p>a", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_page_becomes_markdown(html: str, markdown: str) -> None:
    assert readable(html, URL) == markdown


ODD = [
    "<",
    ">",
    "</",
    "a",
    "p",
    "pre",
    "li",
    "ul",
    "script",
    "!--",
    "-->",
    "&",
    ";",
    "#",
    '"',
    "href=",
    "é",
    "[",
    "İ",
]


@given(st.lists(st.sampled_from([*ODD, " ", "\n"])))
def test_no_page_is_too_odd(pieces: list[str]) -> None:
    assert isinstance(readable("".join(pieces), URL), str)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    ["<", "<a", "<!--", "<!", "</", "<a href=\"", "<a href=\">", "&", "&#", "<script>", "<pre>",
     "<ul><li>", "<a href=x>", "<svg/", "href =", "<p>\n\n\n "],
)  # fmt: skip
def test_a_page_made_to_keep_us_busy_does_not(piece: str) -> None:
    readable(piece * (200_000 // len(piece)), URL)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html; charset=utf-8", "html"),
        ("application/xhtml+xml", "html"),
        ("Text/Plain", "text"),
        ("application/json", "text"),
        ("application/ld+json;x=y", "text"),
        ("application/atom+xml", "text"),
        ("", "text"),
        ("application/pdf", None),
        ("image/png", None),
        ("application/octet-stream", None),
        ("nonsense", None),
    ],
)
def test_text_is_told_from_what_is_none(content_type: str, kind: str | None) -> None:
    assert kind_of(content_type) == kind


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("für".encode(), "text/plain", "für"),
        (b"f\xfcr \x80", "text/plain; charset=ISO-8859-1", "für €"),
        ("日本".encode("shift_jis"), 'text/plain; charset="Shift_JIS"', "日本"),
        ("für".encode("utf-16"), "text/plain; charset=utf-8", "für"),
        (b"\xef\xbb\xbfa", "text/plain", "a"),
        (b'<meta charset="windows-1252">f\xfcr', "text/html", "für"),
        (b"<meta http-equiv=x content='text/html; charset=koi8-r'>\xc1", "text/html", "а"),
        (b"<meta charset=utf-8>f\xfcr", "text/html; charset=cp1252", "für"),
        (b"f\xfcr", "text/plain; charset=zip", "f�r"),
        (b"xn--", "text/plain; charset=punycode", "xn--"),
        (b"\xffa", "text/plain; charset=\xe9", "�a"),
        (b"<!DOCTYPE html><p>a", "", "a"),
        (b'{"a": 1}', "", '{"a": 1}'),
    ],
)
def test_text_is_read_in_its_encoding(body: bytes, content_type: str, text: str) -> None:
    assert text_of(body, content_type, kind_of(content_type), URL) == text


def test_bytes_under_the_name_of_text_are_none() -> None:
    assert text_of(b"a\0b", "text/plain", "text", URL) is None
