"""One word of a command as bash would read it: quotes removed, what is not known marked.

Called by shell.py with the bytes of a word, which this reads itself: tree-sitter splits some
words in two (`a$b\\*`) and takes an escaped space for a separator. Only where a substitution
ends is the tree's word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """`TEXT` is literal, `GLOB` an unquoted pattern, `VAR` a plain `$name`, `UNKNOWN` the rest."""

    TEXT = 0
    GLOB = 1
    VAR = 2
    UNKNOWN = 3


Piece = tuple[Kind, str]

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(rb"[0-9@*#?$!-]")
_TAME_EXPANSION = re.compile(
    rb"\$\{(?:\#?[A-Za-z0-9_]+"
    rb"|[A-Za-z0-9_]+(?::?[-+?]|\#\#?|%%?|//?|\^\^?|,,?)[^$`\\\"'{}()\[\]]*"
    rb"|[A-Za-z0-9_]+:[0-9]+(?::[0-9]+)?)\}"
)
_TAME_ARITHMETIC = re.compile(rb"\$\(\([0-9 \t+*/%()-]*\)\)")
_BRACES = re.compile(rb"\{[^{}]*(?:,|\.\.)[^{}]*\}", re.DOTALL)
_ANSI = re.compile(
    rb"\\(?:x(?P<x>[0-9A-Fa-f]{1,2})|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<U>[0-9A-Fa-f]{1,8})"
    rb"|(?P<o>[0-7]{1,3})|c(?P<c>.)|(?P<e>.))",
    re.DOTALL,
)
_ANSI_CHARS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_META = frozenset(b" \t\n;&|<>()")
_PLAIN = re.compile(rb"[^\\'\"$`*?\[ \t\n;&|<>()]+")
_PLAIN_QUOTED = re.compile(rb'[^\\"$`]+')


@dataclass(frozen=True)
class Word:
    """`text` is the one string the word stands for, None while that is not known.

    `odd` says that bash may read it otherwise, or runs something to find out.
    """

    raw: str
    pieces: tuple[Piece, ...]
    text: str | None
    one: bool
    odd: bool = False

    @property
    def is_glob(self) -> bool:
        """Whether the word is a pattern for file names, and nothing else about it is open."""
        kinds = {kind for kind, _ in self.pieces}
        return Kind.GLOB in kinds and kinds <= {Kind.TEXT, Kind.GLOB} and not self.odd

    def guess(self, values: Mapping[str, str]) -> tuple[str, bool]:
        """The text with `values` for variables, nothing for the rest; whether that is sure."""
        known = [
            values.get(text, "") if kind is Kind.VAR else "" if kind is Kind.UNKNOWN else text
            for kind, text in self.pieces
        ]
        sure = all(
            kind in (Kind.TEXT, Kind.GLOB) or (kind is Kind.VAR and text in values)
            for kind, text in self.pieces
        )
        return "".join(known), sure


def read_word(raw: bytes, spans: Mapping[int, int], home: Path | None) -> Word:
    """The word in `raw`; `spans` are start and end of its substitutions.

    `home` is None where the command itself may change `$HOME`.
    """
    reader = _Reader(raw, spans, home)
    reader.read()
    pieces = tuple(reader.merged())
    text = "".join(text for _, text in pieces)
    plain = all(kind is Kind.TEXT for kind, _ in pieces) and not reader.odd
    return Word(_decode(raw), pieces, text if plain else None, not reader.splits, reader.odd)


class _Reader:
    """A position in the word, and what was found up to there."""

    def __init__(self, raw: bytes, spans: Mapping[int, int], home: Path | None) -> None:
        self.raw, self.spans, self.home = raw, spans, home
        self.pieces: list[tuple[Kind, bytes]] = []
        self.at, self.quoted = 0, False
        self.odd = self.splits = False

    def add(self, kind: Kind, text: bytes) -> None:
        self.pieces.append((kind, text))
        if kind is Kind.GLOB or (kind in (Kind.VAR, Kind.UNKNOWN) and not self.quoted):
            self.splits = True

    def merged(self) -> list[Piece]:
        """Neighbours of one kind as one; a NUL and what follows it ends a `$'…'` in bash."""
        pieces: list[tuple[Kind, bytes]] = []
        for kind, text in self.pieces:
            if pieces and kind is Kind.TEXT is pieces[-1][0]:
                pieces[-1] = (kind, pieces[-1][1] + text)
            else:
                pieces.append((kind, text))
        return [(kind, _decode(text)) for kind, text in pieces]

    def read(self) -> None:
        self.tilde()
        braces = bytearray(self.raw)
        while self.at < len(self.raw):
            start, quoted = self.at, self.quoted
            if found := (_PLAIN_QUOTED if quoted else _PLAIN).match(self.raw, start):
                self.at = found.end()
                self.add(Kind.TEXT, found[0])
            else:
                self.step(self.raw[start])
            if quoted or not found:
                braces[start : self.at] = b"x" * (self.at - start)
        if _BRACES.search(braces):
            self.add(Kind.UNKNOWN, self.raw)
        self.odd |= self.quoted

    def step(self, char: int) -> None:
        raw, at = self.raw, self.at
        self.at += 1
        if at in self.spans:
            self.at = self.spans[at]
            self.substitution(raw[at : self.at])
        elif char in b"\\":
            self.escape()
        elif char in b'"':
            self.quoted = not self.quoted
        elif char in b"$":
            self.dollar()
        elif char in b"`" or (not self.quoted and char in _META):
            self.odd = True
        elif char in b"'":
            end = raw.find(b"'", at + 1)
            self.odd |= end < 0
            self.at = end + 1 if end >= 0 else len(raw)
            self.add(Kind.TEXT, raw[at + 1 : self.at - 1])
        else:
            pattern = char in b"*?" or (char in b"[" and b"]" in raw[at:])
            self.add(Kind.GLOB if pattern else Kind.TEXT, raw[at : at + 1])

    def tilde(self) -> None:
        if not self.raw.startswith(b"~"):
            return
        name = re.split(rb"[/]", self.raw, maxsplit=1)[0]
        if name == b"~" and self.home:
            self.add(Kind.TEXT, str(self.home).encode(errors="surrogateescape"))
        else:
            self.add(Kind.UNKNOWN, name)
        self.at = len(name)

    def escape(self) -> None:
        char = self.raw[self.at : self.at + 1]
        self.at += 1
        if char in (b"", b"\n"):
            self.odd = True
        elif self.quoted and char not in b'$`"\\':
            self.add(Kind.TEXT, b"\\" + char)
        else:
            self.add(Kind.TEXT, char)

    def dollar(self) -> None:
        raw, at = self.raw, self.at
        if found := _NAME.match(raw, at) or _SPECIAL.match(raw, at):
            self.at = found.end()
            self.variable(found[0])
        elif not self.quoted and raw.startswith(b"'", at):
            end = re.compile(rb"(?:[^\\']|\\.)*'", re.DOTALL).match(raw, at + 1)
            self.odd |= end is None
            self.at = end.end() if end else len(raw)
            self.add(Kind.TEXT, _ansi_c(raw[at + 1 : self.at - 1]))
        elif raw[at : at + 1] in (b"{", b"(", b"["):
            self.odd = True  # the tree saw no substitution where bash sees one
        elif self.quoted or not raw.startswith(b'"', at):
            self.add(Kind.TEXT, b"$")

    def variable(self, name: bytes) -> None:
        home = str(self.home) if self.home else ""
        if name == b"HOME" and home and (self.quoted or not re.search(r"[\s*?\[]", home)):
            self.add(Kind.TEXT, home.encode(errors="surrogateescape"))
        else:
            self.add(Kind.VAR, name)

    def substitution(self, text: bytes) -> None:
        if text.startswith(b"${") and _NAME.fullmatch(text, 2, len(text) - 1):
            return self.variable(text[2:-1])
        self.add(Kind.UNKNOWN, text)
        if text.startswith(b"${"):
            self.odd |= not _TAME_EXPANSION.fullmatch(text)
        elif text.startswith((b"$((", b"$[")):
            self.odd |= not _TAME_ARITHMETIC.fullmatch(text)
        elif text.startswith(b"`"):
            self.odd |= b"\\" in text
        return None


def _ansi_c(text: bytes) -> bytes:
    """What `$'…'` stands for."""

    def char(found: re.Match[bytes]) -> bytes:
        if code := found["x"]:
            return bytes([int(code, 16)])
        if code := found["o"]:
            return bytes([int(code, 8) & 0xFF])
        if code := found["u"] or found["U"]:
            number = int(code, 16)
            return chr(number if number <= 0x10FFFF else 0xFFFD).encode(errors="replace")
        if code := found["c"]:
            return bytes([code[0] & 0x1F])
        return bytes([_ANSI_CHARS.get(found["e"][0], found["e"][0])])

    return _ANSI.sub(char, text).partition(b"\0")[0]


def _decode(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")
