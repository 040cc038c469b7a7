"""A page as Markdown that can be read: headings, lists, links, code, tables. Pure.

Not the standard library's parser, which some pages keep busy for minutes, nor another: this takes
each character once, whatever it is given, and understands what pages consist of, not all of HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

from sidecar.protocol import bounds

UNSHOWN = frozenset(
    {"script", "style", "template", "svg", "iframe", "noscript", "canvas", "select", "textarea"}
)
"""What is in them is not for reading."""
BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "form", "table",
     "ul", "ol", "dl", "figure", "blockquote", "details", "fieldset", "address", "body", "title"}
)  # fmt: skip
LINES = frozenset({"br", "tr", "dt", "dd", "summary", "figcaption", "caption", "option", "legend"})
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}

_BEGUN = re.compile(r"<[a-zA-Z/!?]")
_TAG = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9:-]*)")
_HREF = re.compile(r"""\bhref\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*("[^"]*"|'[^']*')""", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\n\r\f]+")


def readable(html: str, url: str) -> str:
    """Links are made whole by `url`, where the page is."""
    writer = _Writer(url)
    for tag, text in _tokens(html):
        if tag is None:
            writer.text(text)
        else:
            writer.tag(tag, text)
    return writer.all()


def _tokens(html: str) -> Iterator[tuple[str | None, str]]:
    """Text as `(None, text)`; tags as their name, an end with its slash, and what is in them."""
    lowered = html.lower()
    lowered = lowered if len(lowered) == len(html) else html  # a few letters grow
    at, size = 0, len(html)
    while at < size:
        begun = _BEGUN.search(html, at)
        start = begun.start() if begun else size
        if start > at:
            yield None, html[at:start]
        if begun is None:
            return
        if html.startswith("<!--", start):
            end = html.find("-->", start + 4)
            at = end + 3 if end >= 0 else size
            continue
        found = _TAG.match(html, start + 1)
        end = html.find(">", start)
        if end < 0:
            return
        at = end + 1
        if found is None:
            continue
        name = found[2].lower()
        if name in UNSHOWN and not found[1] and html[end - 1] != "/":
            close = lowered.find(f"</{name}", at)
            if close < 0:
                return
            at = close
        else:
            yield found[1] + name, html[found.end() : min(end, found.end() + bounds.WEB_TAG_CHARS)]


class _Writer:
    def __init__(self, url: str) -> None:
        self._url = url
        self._out: list[str] = []
        self._newlines = 2
        """At the end of what is written; the start counts as a paragraph's."""
        self._link: tuple[int, str] | None = None
        self._depth = 0
        self._pre = 0

    def text(self, text: str) -> None:
        text = unescape(text)
        if not self._pre:
            text = _BLANK.sub(" ", text)
            if self._newlines or self._out[-1].endswith(" "):
                text = text.lstrip(" ")
        self._put(text)

    def tag(self, tag: str, inside: str) -> None:
        name = tag.lstrip("/")
        opens = tag == name
        match name:
            case "a":
                self._end_link()
                if opens and (found := _HREF.search(inside)):
                    self._link = (len(self._out), unescape(found[1].strip("\"'")))
            case "pre":
                self._break(2 if opens else 1)
                self._pre = max(0, self._pre + (1 if opens else -1))
                self._put("```\n")
            case "code" | "kbd" | "samp" if not self._pre:
                self._put("`")
            case "ul" | "ol":
                self._depth = max(0, self._depth + (1 if opens else -1))
                self._break(1 if self._depth > opens else 2)
            case "li":
                self._break(1)
                if opens:
                    self._put("  " * min(max(0, self._depth - 1), bounds.WEB_LIST_LEVELS) + "- ")
            case "td" | "th" if not opens:
                self._put(" | ")
            case "hr":
                self._break(2)
                self._put("---\n\n")
            case "img" if (found := _ALT.search(inside)) and found[1].strip("\"' "):
                self._put(f"[image: {unescape(found[1][1:-1])}]")
            case _ if name in HEADINGS:
                self._break(2)
                if opens:
                    self._put(HEADINGS[name] + " ")
            case _ if name in BLOCKS:
                self._break(2)
            case _ if name in LINES:
                self._break(1)
            case _:
                pass

    def all(self) -> str:
        self._end_link()
        return "\n".join(line.rstrip(" ") for line in "".join(self._out).split("\n")).strip("\n")

    def _put(self, text: str) -> None:
        if bare := text.rstrip("\n"):
            self._newlines = len(text) - len(bare)
        else:
            self._newlines += len(text)
        if text:
            self._out.append(text)

    def _break(self, newlines: int) -> None:
        """At least so many before what follows."""
        self._end_link()
        self._put("\n" * (newlines - self._newlines))

    def _end_link(self) -> None:
        """The text since its start becomes a link, if it leads to somewhere and has words."""
        if self._link is None:
            return
        start, href = self._link
        self._link = None
        words = "".join(self._out[start:])
        try:
            target = urljoin(self._url, href)
        except ValueError:
            return
        if words.strip() and not href.startswith("#") and target.startswith(("http:", "https:")):
            self._out[start:] = [f"[{words.strip()}]({target})" + " " * words.endswith(" ")]
