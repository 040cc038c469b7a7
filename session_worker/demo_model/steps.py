"""What the demo model can do: each step with the tools that could do it, the best one first.

Used by `grammar`, which finds steps in a prompt, and `intents`, which takes the first candidate
whose tool is offered. Pure; every word of the user reaches a shell quoted.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from shlex import quote

from session_worker.demo_model.conversation import Tools
from session_worker.demo_model.reply import Json, tool_use

NO_MATCH_IS_FINE = "cat"
"""Ends a pipe: grep says "no match" by exit code 1, which is an answer and not a failure."""
TEST_S = 60
"""For one run of tests: an edit may have made it endless."""
REPLACE_SCRIPT = """\
import pathlib, sys
path, *texts = sys.argv[1:]
text = pathlib.Path(path).read_text()
for old, new in zip(texts[::2], texts[1::2]):
    if old not in text:
        sys.exit(f"{path}: not found: {old}")
    text = text.replace(old, new)
pathlib.Path(path).write_text(text)
"""


@dataclass(frozen=True)
class Step:
    """One call to be made. What `changes` something runs in a turn of its own."""

    candidates: tuple[tuple[str, Json], ...]
    changes: bool = False


def choose(step: Step, tools: Tools) -> Json | None:
    """The call of the first candidate whose tool is offered."""
    offered = (tool_use(name, given) for name, given in step.candidates if name in tools)
    return next(offered, None)


def _step(command: str, *better: tuple[str, Json], changes: bool = False) -> Step:
    return Step((*better, ("bash", {"command": command})), changes)


def list_files(directory: str = ".", suffix: str = "") -> Step:
    where = {} if directory == "." else {"path": directory}
    glob = ("glob", {"pattern": f"*{suffix}", **where})
    command = "ls -1A" if directory == "." else f"ls -1A -- {quote(directory)}"
    if suffix:
        ending = quote(re.escape(suffix) + "$")
        return _step(f"{command} | grep -e {ending} | {NO_MATCH_IS_FINE}", glob)
    return _step(command, ("list_dir", {"path": directory}), glob)


def read_file(path: str) -> Step:
    return _step(f"cat -- {quote(path)}", ("read_file", {"path": path}))


def create_file(path: str, content: str) -> Step:
    """Without content nothing that exists may be lost, so only `touch` will do."""
    command = (
        f"printf %s {quote(content)} > {quote(path)}" if content else f"touch -- {quote(path)}"
    )
    if parent := posixpath.dirname(path):
        command = f"mkdir -p -- {quote(parent)} && {command}"
    better = [("write_file", {"path": path, "content": content})] if content else []
    return _step(command, *better, changes=True)


def replace_text(path: str, old: str, new: str, tools: Tools) -> list[Step]:
    """Reads first where both file tools are offered: edits want a file that was read."""
    step = edit_file(path, [(old, new)], everywhere=True)
    return [read_file(path), step] if {"read_file", "edit_file"} <= set(tools) else [step]


def edit_file(path: str, pairs: Sequence[tuple[str, str]], *, everywhere: bool = False) -> Step:
    """Old and new texts, in order. Unless `everywhere` each old text must be there just once."""
    more = {"replace_all": True} if everywhere else {}
    edits = [{"old_string": old, "new_string": new, **more} for old, new in pairs]
    texts = chain.from_iterable(pairs)
    command = " ".join(map(quote, ("python3", "-c", REPLACE_SCRIPT, path, *texts)))
    return _step(command, ("edit_file", {"path": path, "edits": edits}), changes=True)


def search_text(words: str, path: str = "") -> Step:
    command = f"grep -rnF --exclude-dir=.git -e {quote(words)} -- {quote(path or '.')}"
    pattern = re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", words)
    better = ("grep", {"pattern": pattern, **({"path": path} if path else {})})
    return _step(f"{command} | {NO_MATCH_IS_FINE}", better)


def run_command(command: str) -> Step:
    """A script's name alone is run by its interpreter."""
    return run_file(command) if re.fullmatch(r"[\w./-]+\.(py|sh|js)", command) else _step(command)


def run_file(path: str) -> Step:
    return _step(f"{_interpreter(path)} {quote(path)}", changes=True)


def _interpreter(path: str) -> str:
    known = {".py": "python3", ".sh": "bash", ".js": "node"}
    return known.get(posixpath.splitext(path)[1], "cat")


def git_branch() -> Step:
    return _step("git branch --show-current")


def git_status() -> Step:
    return _step("git status --short --branch")


def use_tool(name: str, words: str, tools: Tools) -> Step:
    """Any offered tool by its name, or by its part after the server's name.

    `words` are a JSON object, or text for the tool's first text argument.
    """
    matches = [tool for tool in tools if tool == name or tool.endswith(f"__{name}")]
    known = matches[0] if matches else name
    return Step(((known, _arguments(words, tools.get(known, {}))),))


def _arguments(words: str, tool: Json) -> Json:
    if words.startswith("{"):
        try:
            return json.loads(words)
        except json.JSONDecodeError:
            pass
    schema: Json = tool.get("input_schema", {})
    properties: Json = schema.get("properties", {})
    names = [*schema.get("required", []), *properties]
    texts = [name for name in names if properties.get(name, {}).get("type") == "string"]
    return {texts[0]: words} if words and texts else {}


def run_tests(command: str) -> Step:
    """Without a cache of bytecode: by time and size it is not told from that of an edit made in
    the same second, such as a minus for a plus."""
    given = {"command": f"python3 -B -m {command}", "timeout_s": TEST_S}
    return Step((("bash", given),), changes=True)


def find_python() -> Step:
    return _step("find . -name '*.py' -not -path '*/.*'", ("glob", {"pattern": "**/*.py"}))


def number_lines(path: str) -> Step:
    """As `read_file` does."""
    return _step(f"cat -n -- {quote(path)}", ("read_file", {"path": path}))


REPAIR = run_tests("unittest")
"""Stands for a repair, which begins with it."""


def program_that_prints(path: str, words: str) -> str:
    """Source that prints these words, by the file's suffix; else just the words."""
    sources = {
        ".py": f"print({words!r})",
        ".sh": f"echo {quote(words)}",
        ".js": f"console.log({json.dumps(words)});",
    }
    return sources.get(posixpath.splitext(path)[1], words) + "\n"
