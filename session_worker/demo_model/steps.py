"""What the demo model can do: each step with the tools that could do it, the best one first.

Used by `grammar`, which finds steps in a prompt, and `intents`, which takes the first candidate
whose tool is offered. Pure; every word of the user reaches a shell quoted.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from shlex import quote

from session_worker.demo_model.conversation import Tools
from session_worker.demo_model.reply import Json

NO_MATCH_IS_FINE = "cat"
"""Ends a pipe: grep says "no match" by exit code 1, which is an answer and not a failure."""
REPLACE_SCRIPT = """\
import pathlib, sys
path, old, new = pathlib.Path(sys.argv[1]), *sys.argv[2:]
text = path.read_text()
if old not in text:
    sys.exit(f"{path}: not found: {old}")
path.write_text(text.replace(old, new))
"""


@dataclass(frozen=True)
class Step:
    """One call to be made. What `changes` something runs in a turn of its own."""

    candidates: tuple[tuple[str, Json], ...]
    changes: bool = False


def _step(command: str, *better: tuple[str, Json], changes: bool = False) -> Step:
    return Step((*better, ("bash", {"command": command})), changes)


def list_files(directory: str = ".", suffix: str = "") -> Step:
    pattern = posixpath.normpath(posixpath.join(directory, f"*{suffix}"))
    command = "ls -1A" if directory == "." else f"ls -1A -- {quote(directory)}"
    if suffix:
        ending = quote(re.escape(suffix) + "$")
        return _step(
            f"{command} | grep -e {ending} | {NO_MATCH_IS_FINE}", ("glob", {"pattern": pattern})
        )
    return _step(command, ("list_dir", {"path": directory}), ("glob", {"pattern": pattern}))


def read_file(path: str) -> Step:
    return _step(f"cat -- {quote(path)}", ("read_file", {"path": path}))


def create_file(path: str, content: str) -> Step:
    # without content nothing that exists may be lost
    command = (
        f"printf %s {quote(content)} > {quote(path)}" if content else f"touch -- {quote(path)}"
    )
    if parent := posixpath.dirname(path):
        command = f"mkdir -p -- {quote(parent)} && {command}"
    return _step(command, ("write_file", {"path": path, "content": content}), changes=True)


def replace_text(path: str, old: str, new: str, tools: Tools) -> list[Step]:
    """Reads first where both file tools are offered: edits want a file that was read."""
    edit: Json = {"path": path, "edits": [{"old_string": old, "new_string": new}]}
    words = " ".join(map(quote, (REPLACE_SCRIPT, path, old, new)))
    step = _step(f"python3 -c {words}", ("edit_file", edit), changes=True)
    return [read_file(path), step] if {"read_file", "edit_file"} <= set(tools) else [step]


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


def program_that_prints(path: str, words: str) -> str:
    """Source that prints these words, by the file's suffix; else just the words."""
    sources = {
        ".py": f"print({words!r})",
        ".sh": f"echo {quote(words)}",
        ".js": f"console.log({json.dumps(words)});",
    }
    return sources.get(posixpath.splitext(path)[1], words) + "\n"
