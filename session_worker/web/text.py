"""From what a server sent to text: which types are text, and in which encoding. Pure."""

from __future__ import annotations

import codecs
import re
from email.message import Message
from typing import Literal

from session_worker.web.html import readable
from sidecar.protocol import bounds

Kind = Literal["html", "text"] | None
"""None is what cannot be shown."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-javascript|ecmascript"
    r"|graphql|sql|x-sh|x-ndjson|jsonl|rtf|x-www-form-urlencoded)|message/.+|image/svg\+xml"
)
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([a-zA-Z0-9_:-]{1,40})", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSETS = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|ascii|latin-1|iso8859-\d+|cp125\d|cp866|cp874|koi8-[ru]|mac-roman"
    r"|shift_jis|cp932|euc_jp|iso2022_jp|gb2312|gbk|gb18030|big5(?:hkscs)?|euc_kr|cp949"
)
"""Those of the web. Python knows others that are none of text, or take for ever."""


def kind_of(content_type: str) -> Kind:
    """What to take it for. Without any type it is what it looks like, and that is text."""
    main = content_type.partition(";")[0].strip().lower()
    if main in _HTML:
        return "html"
    return "text" if not main or _TEXT.fullmatch(main) else None


def text_of(body: bytes, content_type: str, kind: Kind, url: str) -> str | None:
    """The body as text, a page as Markdown; None if it is no text. Takes a second for the largest:
    not on a loop."""
    text = _decoded(body, content_type, html=kind == "html")
    if text is None or "\0" in text[:8192]:
        return None
    is_page = kind == "html" or (
        not content_type and text[:200].lstrip().lower().startswith("<!do")
    )
    return readable(text, url) if is_page else text


def _decoded(body: bytes, content_type: str, *, html: bool) -> str | None:
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    named = _charset(content_type)
    if html and not named and (found := _META.search(body[: bounds.WEB_META_BYTES])):
        named = found[1].decode()
    return body.decode(_known(named), "replace")


def _charset(content_type: str) -> str:
    message = Message()
    message["Content-Type"] = content_type.replace("\r", " ").replace("\n", " ")
    return message.get_content_charset("") or ""


def _known(named: str) -> str:
    """Browsers take the old Western ones for Windows' own, and what they do not know for UTF-8."""
    try:
        name = codecs.lookup(named).name if named.isascii() else "utf-8"
    except LookupError:
        return "utf-8"
    if name in ("ascii", "iso8859-1"):
        return "cp1252"
    return name if _CHARSETS.fullmatch(name) else "utf-8"
