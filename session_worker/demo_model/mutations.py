"""Small changes to Python source that undo classical mistakes: the whole skill of a repair.

Used by `repair`. Pure and deterministic. A list of guesses, not an understanding: which of them is
right, only the tests can say.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

SWAPS = {
    "+": ("-", "*"), "-": ("+",), "*": ("+", "/"), "/": ("//", "*"), "//": ("/",), "%": ("//",),
    "+=": ("-=", "*="), "-=": ("+=",), "*=": ("+=",), "/=": ("//=", "*="), "//=": ("/=",),
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="),
    "==": ("!=",), "!=": ("==",), "and": ("or",), "or": ("and",),
}  # fmt: skip
"""What may have been meant by an operator."""
_OPERATOR = re.compile(rb"[\s)]*([^\s()]+)[\s(]*")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Kind(IntEnum):
    """The order in which mistakes are looked for in equally likely places."""

    UNKNOWN_NAME = 0
    NO_RETURN = 1
    RANGE = 2
    OPERATOR = 3
    NUMBER = 4
    NAME = 5


@dataclass(frozen=True)
class Spot:
    """Bytes `start` to `end` of a line, numbered from 1, and what may stand there instead."""

    kind: Kind
    line: int
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Change:
    """`old` becomes `new`; each is there just once, `old` before and `new` after it. `was` and
    `becomes` are what changes of the line, to be shown; `rank` 0 is the likeliest place."""

    path: str
    line: int
    old: str
    new: str
    was: str
    becomes: str
    rank: int


def changes(
    path: str, source: str, lines: Collection[int], names: Collection[str]
) -> Iterator[Change]:
    """Each one apart from the others, the likeliest first: those in `lines`, then those in
    functions of these `names`, then all others. None if this is not Python."""
    tree = _parsed(source)
    if tree is None:
        return
    rows = source.split("\n")
    likely = {
        line
        for node in ast.walk(tree)
        if isinstance(node, _Function) and node.name in names
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    ranked = [
        (0 if spot.line in lines else 1 if spot.line in likely else 2, spot)
        for spot in dict.fromkeys(_spots(tree, [row.encode() for row in rows]))
    ]
    for rank, spot in sorted(ranked, key=lambda item: (item[0], item[1].kind, item[1].line)):
        at = spot.line - 1
        row = rows[at].encode()
        changed = (row[: spot.start] + spot.text.encode() + row[spot.end :]).decode()
        was, becomes = rows[at].strip(), changed.strip()
        if "\n" in changed:
            was, becomes = "", changed.partition("\n")[2].strip()
        old, new = _places(rows, [*rows[:at], changed, *rows[at + 1 :]], at)
        yield Change(path, spot.line, old, new, was, becomes, rank)


def _places(rows: Sequence[str], after: Sequence[str], at: int) -> tuple[str, str]:
    """Row `at` before and after, with as many around it as it takes to be unlike any other."""
    whole = "\n".join(rows), "\n".join(after)
    for around in (0, *(1 << n for n in range(len(rows).bit_length()))):
        window = slice(max(0, at - around), at + 1 + around)
        old, new = "\n".join(rows[window]), "\n".join(after[window])
        if _is_once(old, whole[0]) and _is_once(new, whole[1]):
            return old, new
    return whole


def _is_once(part: str, text: str) -> bool:
    """Overlaps count, as they do for `edit_file`."""
    return text.find(part) == text.rfind(part)


def names_used(source: str, line: int) -> set[str]:
    """Names in the innermost function around a line, or in all of the source."""
    tree = _parsed(source)
    around = [
        node
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, _Function) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    place = max(around, key=lambda node: node.lineno, default=tree)
    nodes = [*ast.walk(place)] if place else []
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def imported(source: str, files: Sequence[str]) -> list[str]:
    """Which of these files the source imports, as far as names tell, in its order."""
    modules: list[str] = []
    for node in ast.walk(_parsed(source) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            modules += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    paths = [f"/{module.replace('.', '/')}" for module in modules if module]
    endings = [path + end for path in paths for end in (".py", "/__init__.py")]
    return [file for ending in endings for file in files if f"/{file}".endswith(ending)]


def _parsed(source: str) -> ast.Module | None:
    if "\r" in source:
        return None  # for Python it ends a line, so numbers of lines would differ from ours
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _spots(tree: ast.Module, rows: Sequence[bytes]) -> Iterator[Spot]:
    known = {node.name for node in ast.walk(tree) if isinstance(node, _Function | ast.ClassDef)}
    known |= _stored(tree) | {*dir(builtins)}
    for node in _walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                yield from _operators([left, *others], rows)
            case ast.BoolOp(values=values):
                yield from _operators(values, rows)
            case ast.BinOp(left=left, right=right):
                yield from _operators([left, right], rows)
            case ast.AugAssign(target=target, value=value):
                yield from _operators([target, value], rows)
            case ast.Call(func=ast.Name(id="range"), args=[stop] | [_, stop] | [_, stop, _]):
                yield from _ranges(stop)
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                for other in (number + 1, number - 1):
                    yield _instead(node, str(other), Kind.NUMBER)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _returns(node, rows)
                yield from _names(node, known)
            case _:
                pass


def _operators(operands: Sequence[ast.expr], rows: Sequence[bytes]) -> Iterator[Spot]:
    for left, right in pairwise(operands):
        start, end = left.end_col_offset or 0, right.col_offset
        match = _OPERATOR.fullmatch(rows[right.lineno - 1], start, end)
        if left.end_lineno == right.lineno and match:
            for other in SWAPS.get(match[1].decode(), ()):
                yield Spot(Kind.OPERATOR, right.lineno, match.start(1), match.end(1), other)


def _ranges(stop: ast.expr) -> Iterator[Spot]:
    """One more or one less; `n + 1` becomes `n`."""
    line, end = stop.end_lineno or 0, stop.end_col_offset or 0
    match stop:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            if left.end_lineno == line:
                yield Spot(Kind.RANGE, line, left.end_col_offset or 0, end, "")
        case ast.Constant():
            pass  # a number has its own neighbours
        case _:
            for one in (" + 1", " - 1"):
                yield Spot(Kind.RANGE, line, end, end, one)


def _returns(function: _Function, rows: Sequence[bytes]) -> Iterator[Spot]:
    """For a function that never returns anything: its last expression, or what it last set."""
    inside = [*ast.walk(function)]
    is_dunder = function.name.startswith("__")
    returns = (ast.Return, ast.Yield, ast.YieldFrom)
    if is_dunder or any(isinstance(node, returns) for node in inside):
        return
    last = function.body[-1]
    match last:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
            return
        case ast.Expr():
            column = last.col_offset
            yield Spot(Kind.NO_RETURN, last.lineno, column, column, "return ")
        case _:
            pass
    stored = [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    if stored and last.lineno > function.lineno:
        name = max(stored, key=lambda node: (node.lineno, node.col_offset)).id
        line = last.end_lineno or last.lineno
        end = len(rows[line - 1])
        addition = f"\n{' ' * last.col_offset}return {name}"
        yield Spot(Kind.NO_RETURN, line, end, end, addition)


def _names(function: _Function, known: Collection[str]) -> Iterator[Spot]:
    """Another name of the function's own; for a name that nobody has set, one that is close."""
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own = sorted(_stored(function) | arguments)
    for node in _walk(function):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.id in own:
            for other in own:
                if other != node.id:
                    yield _instead(node, other, Kind.NAME)
        elif node.id not in known:
            for other in difflib.get_close_matches(node.id, sorted({*own, *known})):
                yield _instead(node, other, Kind.UNKNOWN_NAME)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those inside of an f-string: before Python 3.12 nobody says where they are."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            waiting += ast.iter_child_nodes(node)


def _stored(tree: ast.AST) -> set[str]:
    """Names that are set or imported somewhere in it."""
    names = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    aliases = [node for node in ast.walk(tree) if isinstance(node, ast.alias)]
    return names | {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


def _instead(node: ast.expr, words: str, kind: Kind) -> Spot:
    return Spot(kind, node.lineno, node.col_offset, node.end_col_offset or 0, words)
