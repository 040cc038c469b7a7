"""What a bash script does: its commands at any depth, the files it opens, and what is unclear.

Called by verdict.py. tree-sitter says where commands begin and end; words are read by words.py,
and whatever lies between the nodes is checked here, because the grammar accepts more than bash
does and reads some of it differently. What is not understood for certain makes the script opaque:
the commands found in it still count, but nobody may conclude that there are no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tree_sitter import Node

from session_worker.permissions import programs
from session_worker.permissions.paths import Realpath
from session_worker.permissions.redirects import heredoc_is_certain, is_quoted, split_words
from session_worker.permissions.script import Access, Command, Directories, Script, after
from session_worker.permissions.tree import RUNNING, SUBSTITUTIONS, parsed, substitutions
from session_worker.permissions.variables import steers
from session_worker.permissions.words import Word, read_word

COMMAND_BYTES = 64 * 1024
"""Longer commands are opaque: no person reads them, and reading them costs tens of ms."""
NESTING = 60
"""Constructs within each other: nobody writes more, and Python's stack ends somewhere."""
COMMANDS = 400
"""Looked at in one script, with those behind launchers; a script with more is opaque."""
RESCRIPTS = 3
"""Levels of `bash -c '…'` within each other that are read (tools-and-ux.md §3.2)."""

_WORDS = SUBSTITUTIONS | {
    "array", "ansi_c_string", "brace_expression", "command_name", "concatenation",
    "extglob_pattern", "number", "raw_string", "simple_expansion", "string", "translated_string",
    "variable_name", "word",
}  # fmt: skip
_STRUCTURE = frozenset(
    {"case_item", "case_statement", "compound_statement", "do_group", "elif_clause", "else_clause",
     "for_statement", "function_definition", "if_statement", "list",
     "negated_command", "pipeline", "program", "subshell", "variable_assignments",
     "while_statement"}
)  # fmt: skip
_LOOPS = frozenset({"for_statement", "while_statement", "c_style_for_statement"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_EXPRESSIONS = frozenset(
    {"unary_expression", "binary_expression", "negated_command", "parenthesized_expression"}
)
_RESERVED = frozenset(
    {"!", "((", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
     "function", "if", "in", "select", "then", "time", "until", "while", "{", "}"}
)  # fmt: skip
_TESTS = frozenset(
    {"!", "!=", "&&", "(", ")", "-ef", "-nt", "-ot", "=", "==", "[", "[[", "]", "]]", "||",
     *(f"-{letter}" for letter in "GLNOSabcdefghknoprsuwxz")}
)  # fmt: skip
"""Without those that calculate: `-eq` and `-v` run the `$(…)` in an array index."""
_BLANK = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n|\\\n(?=[ \t]))*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HOME = re.compile(rb"(?<![$\w{])HOME\b")

_MISREAD = "bash may read its words otherwise"
_TOO_MUCH = "it is nested too deep or has too many commands"


def analyse(command: str, cwd: str, home: Path, realpath: Realpath) -> Script:
    """Everything that can be said of `command`, started in `cwd`. Never raises."""
    script = Script()
    _Walk(script, home, realpath, frozenset({cwd})).read(command)
    return script


class _Walk:
    """Through one text; the texts inside `bash -c '…'` have their own and share its script."""

    def __init__(
        self,
        script: Script,
        home: Path,
        realpath: Realpath,
        cwds: Directories,
        level: int = 0,
        *,
        hidden: bool = False,
    ) -> None:
        self.script, self.home, self.realpath = script, home, realpath
        self.cwds, self.level, self.hidden = cwds, level, hidden
        self.source, self.known_home = b"", None
        self.owned: set[int] = set()
        """Where the redirections start whose surplus words a command has taken."""

    def read(self, command: str) -> None:
        reasons = len(self.script.opaque)
        try:
            self.parse(command)
        except RecursionError:
            self.unclear(_TOO_MUCH)
        if len(self.script.opaque) > reasons:
            self.script.murky.append(command[:COMMAND_BYTES])
            if self.hidden:  # it was only a guess that this is a script
                del self.script.opaque[reasons:]

    def parse(self, command: str) -> None:
        if len(command) > COMMAND_BYTES:
            return self.unclear(f"it is longer than {COMMAND_BYTES} characters")
        if found := _CONTROL.search(command):
            return self.unclear(f"it contains the control character {found[0]!r}")
        try:
            self.source = command.encode()
        except UnicodeEncodeError:
            return self.unclear("it is not valid Unicode")
        self.known_home = None if _HOME.search(self.source) else self.home
        root = parsed(self.source)
        if root is None:
            return self.unclear("it is too complex to be parsed")
        if root.has_error:
            self.unclear("it is not valid bash")
        if not self.blank(0, root.start_byte) or not self.blank(root.end_byte, len(self.source)):
            self.unclear(_MISREAD)
        return self.visit(root, 0)

    def unclear(self, reason: str) -> None:
        if reason not in self.script.opaque:
            self.script.opaque.append(reason)

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def blank(self, start: int, end: int) -> bool:
        """Whether there is nothing that bash would not skip as well."""
        return start == end or bool(_BLANK.fullmatch(self.source, start, end))

    def check_gaps(self, node: Node, *, one_line: bool = False) -> None:
        at = node.start_byte
        for child in node.children:
            gap = self.source[at : child.start_byte].replace(b"\\\n", b"")
            if not self.blank(at, child.start_byte) or (one_line and b"\n" in gap):
                self.unclear(_MISREAD)
            at = child.end_byte
        if not self.blank(at, node.end_byte):
            self.unclear(_MISREAD)

    # --- structure ---------------------------------------------------------------------

    def visit(self, node: Node, depth: int) -> None:
        """Take in a node and all below it."""
        if depth > NESTING or len(self.script.commands) > COMMANDS:
            return self.unclear(_TOO_MUCH)
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self.command(node, [], depth)
            case "redirected_statement":
                self.redirected(node, depth)
            case "file_redirect":
                self.file_redirect(node, depth)
            case "heredoc_redirect":
                self.heredoc(node, depth)
            case "herestring_redirect":
                self.units(child for child in node.children if child.type in _WORDS)
                self.substitutions(node, depth)
            case "variable_assignment":
                name = self.assignment(node, depth)
                self.add(self.text(node), (), (name,))
            case "test_command":
                self.test(node)
                self.substitutions(node, depth)
            case "comment":
                if self.source[max(node.start_byte - 1, 0) : node.start_byte] not in b" \t\n;&|()":
                    self.unclear(_MISREAD)
            case kind if kind in _WORDS:
                self.loose_word(node, depth)
            case _:
                self.structure(node, depth)
        return None

    def structure(self, node: Node, depth: int) -> None:
        kind = node.type
        if kind in _STRUCTURE:
            self.check_gaps(node)
        elif node.is_named:
            self.unclear(f"it contains a {kind.replace('_', ' ').lower()}")
        if kind == "compound_statement" and self.source.startswith(b"((", node.start_byte):
            self.unclear("it calculates")
        skipped = None
        if kind == "function_definition":
            skipped = node.child_by_field_name("name")
            self.script.functions.add(self.text(skipped) if skipped else "")
        if kind == "for_statement":
            skipped = node.child_by_field_name("variable")
            if skipped is None or steers(self.text(skipped)):
                self.unclear("it sets a variable that changes what runs")
        if kind == "function_definition" or (
            kind in _LOOPS and re.search(r"\bcd\b", self.text(node))
        ):
            self.cwds = None
        for child in node.children:
            if child != skipped:
                self.visit(child, depth + 1)

    def test(self, node: Node) -> None:
        self.check_gaps(node)
        for child in node.children:
            if child.type in _EXPRESSIONS:
                self.test(child)
            elif child.type in _WORDS:
                self.units([child])
            elif self.text(child) not in _TESTS:
                self.unclear("it has a test that may run something")

    # --- words -------------------------------------------------------------------------

    def units(self, nodes: Iterable[Node]) -> list[Word]:
        """The words that the nodes make up: those without a gap are one word."""
        runs: list[list[Node]] = []
        for node in sorted(nodes, key=lambda node: node.start_byte):
            if runs and runs[-1][-1].end_byte == node.start_byte:
                runs[-1].append(node)
            else:
                runs.append([node])
        return [self.word(run) for run in runs]

    def word(self, run: list[Node]) -> Word:
        start, end = run[0].start_byte, run[-1].end_byte
        spans = {
            found.start_byte - start: found.end_byte - start
            for node in run
            for found in substitutions(node)
        }
        word = read_word(self.source[start:end], spans, self.known_home)
        if word.odd:
            self.unclear(f"bash may read {word.raw[:40]!r} otherwise, or run something in it")
        return word

    def loose_word(self, node: Node, depth: int) -> None:
        """A word that is no argument of a command: only what runs inside it counts."""
        if node.type == "array":
            for child in node.children:
                self.visit(child, depth + 1)
        else:
            self.units([node])
            self.substitutions(node, depth)

    def substitutions(self, node: Node, depth: int) -> None:
        """Take in what runs inside a word."""
        if depth > NESTING:
            return self.unclear(_TOO_MUCH)
        for found in substitutions(node):
            if found.type in RUNNING:
                self.check_gaps(found)
            for child in found.children:
                if found.type in RUNNING:
                    self.visit(child, depth + 1)
                else:
                    self.substitutions(child, depth + 1)
        return None

    # --- redirections ------------------------------------------------------------------

    def redirected(self, node: Node, depth: int) -> None:
        self.check_gaps(node, one_line=True)
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        if body is None or body.type == "command":
            self.command(body, redirects, depth)
        else:
            self.visit(body, depth + 1)
        for child in redirects:
            self.visit(child, depth + 1)

    def split(self, redirect: Node) -> tuple[list[Node], list[Node]]:
        return split_words(redirect, [c for c in redirect.children if c.type in _WORDS])

    def file_redirect(self, node: Node, depth: int) -> None:
        self.check_gaps(node, one_line=True)
        target, surplus = self.split(node)
        if surplus and node.start_byte not in self.owned:
            self.unclear("there are words behind a redirection")
        operator = "".join(self.text(child) for child in node.children if not child.is_named)
        for part in target:
            self.substitutions(part, depth)
        for word in self.units(target):
            if operator in ("<&", ">&") and re.fullmatch(r"[0-9]+-?|-", word.text or ""):
                continue
            family = "read" if operator == "<" else "edit"
            text = f"{operator} {word.raw}"
            self.script.accesses.append(Access(text, family, word, self.cwds, self.hidden))

    def heredoc(self, node: Node, depth: int) -> None:
        if self.split(node)[1] and node.start_byte not in self.owned:
            self.unclear("there are words behind a redirection")
        self.check_gaps(node)
        if not heredoc_is_certain(node, self.source):
            self.unclear("bash may end its here-document elsewhere")
        for child in node.children:
            if child.type == "heredoc_body" and not is_quoted(node, self.source):
                if re.search(r"`|\$[({\[]", self.text(child)):
                    self.unclear("its here-document runs something")
                self.substitutions(child, depth)
            elif child.type not in _WORDS and not child.type.startswith("heredoc_"):
                self.visit(child, depth + 1)

    # --- commands ----------------------------------------------------------------------

    def assignment(self, node: Node, depth: int) -> str:
        """The variable's name; its value is kept if it is literal."""
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            self.unclear("it calculates an index")
            return "?"
        if value is not None and value.type == "array":
            self.loose_word(value, depth)
        elif value is not None:
            self.substitutions(value, depth)
            for word in self.units([value]):
                if word.text is not None:
                    self.script.values[self.text(name)] = word.text
        return self.text(name)

    def command(self, node: Node | None, redirects: list[Node], depth: int) -> None:
        """A simple command, with the words of it that the tree has in `redirects`."""
        children = node.children if node else []
        own = [child for child in children if child.type in _REDIRECTS]
        set_here = [child for child in children if child.type == "variable_assignment"]
        names = tuple(self.assignment(child, depth) for child in set_here)
        declares = node is not None and node.type != "command"
        skipped = [*own, *([] if declares else set_here)]
        words = [child for child in children if child not in skipped and child.type != "comment"]
        for redirect in [*own, *redirects]:
            words += self.split(redirect)[1]
            self.owned.add(redirect.start_byte)
        for child in own:
            self.visit(child, depth + 1)
        for word in words:
            self.substitutions(word, depth)
        if node:
            self.check_gaps(node, one_line=True)
        for left, right in pairwise(children):
            if left.end_byte == right.start_byte and left in skipped and right in words:
                self.unclear(_MISREAD)  # `a=$b\\cat x` is an assignment and x, not cat
        found = self.units(words)
        texts = [self.text(child) for child in set_here if not declares]
        texts += [word.raw for word in found]
        if texts:
            self.add(" ".join(texts), tuple(found), names)

    def add(self, text: str, words: tuple[Word, ...], names: tuple[str, ...]) -> None:
        """Note a command, what it hides, and where it goes."""
        core = programs.unwrapped(words)
        nested = self.level > 0
        command = Command(text, words, core, names, self.cwds, self.hidden, nested)
        self.cwds = after(command, self.home, self.realpath)
        script = programs.plain_shell(core)
        if script is not None and not names:
            return self.reread(script, hidden=self.hidden)
        self.script.commands.append(command)
        if not core:
            return None
        if core[0].text in _RESERVED:
            self.unclear(_MISREAD)
        for inner in programs.hidden(core):
            raw = " ".join(word.raw for word in inner)
            self.script.commands.append(Command(raw, inner, inner, (), self.cwds, True, nested))
        for inside in programs.scripts(core):
            self.reread(inside, hidden=True)
        return None

    def reread(self, text: str, *, hidden: bool) -> None:
        if self.level >= RESCRIPTS:
            return self.unclear(_TOO_MUCH)
        level = self.level + 1
        walk = _Walk(self.script, self.home, self.realpath, self.cwds, level, hidden=hidden)
        return walk.read(text)
