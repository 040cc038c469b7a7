"""What `sidecarctl` prints: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from client.cli.terminal import one_line, printable
from sidecar.protocol.errors import SidecarError

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


class Output:
    """The two streams. `format` is one of the command's own."""

    def __init__(self, format: str, color: str) -> None:
        self.format = format
        self._color = color

    @property
    def seen_live(self) -> bool:
        """Whether a person sees both streams, one among the other."""
        return sys.stdout.isatty() and sys.stderr.isatty()

    def data(self, text: str) -> None:
        """Text for stdout, as it is; made safe first where a terminal would show it."""
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def value(self, value: Any) -> None:
        """A JSON value: indented for `json`, on one line for `jsonl`."""
        indent = 2 if self.format == "json" else None
        self.data(json.dumps(value, indent=indent) + "\n")

    def note(self, text: str, style: str = "") -> None:
        """A line for people, on stderr."""
        self.aside(text, style)
        self.aside("\n")

    def aside(self, text: str, style: str = "") -> None:
        """Text for people, on stderr; need not end a line."""
        sys.stderr.write(self.paint(printable(text), style, sys.stderr))
        sys.stderr.flush()

    def error(self, error: SidecarError) -> None:
        """What went wrong, and what to do about it."""
        self.note(f"sidecarctl: {error.message}", RED)
        if log_tail := error.data.get("log_tail"):
            self.note(str(log_tail).rstrip(), DIM)
        self.note(f"try: {error.hint or 'sidecarctl --help'}")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns as wide as their longest cell."""
        lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            sys.stdout.write("  ".join(cells).rstrip() + "\n")
        sys.stdout.flush()

    def fields(self, value: Mapping[str, Any]) -> None:
        """`name: value` lines; nested names are joined by a dot, empty ones left out."""
        for name, item in _flat(value):
            sys.stdout.write(f"{self.paint(name, BOLD, sys.stdout)}: {one_line(str(item))}\n")
        sys.stdout.flush()

    def paint(self, text: str, style: str, stream: TextIO) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._colored(stream) else text

    def _colored(self, stream: TextIO) -> bool:
        if self._color != "auto":
            return self._color == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif item is not None and item != "":
            yield prefix + name, item
