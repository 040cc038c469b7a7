"""The pages for people, as tests read and run them: fenced blocks, and commands of `sidecarctl`.

A block whose fence names a file after the language is that file; `sh` blocks are what a person
types, one after the other.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tests.support.daemon import Daemon, environment

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md"))))
RUN_S = 60
"""For all commands of one section."""
_FENCED = re.compile(r"^```(\S*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(sidecarctl [^`]+)`")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_BASH = Language(tree_sitter_bash.language())


@dataclass(frozen=True)
class Block:
    language: str
    file: str
    """Empty for what is no file."""
    text: str


def blocks(page: str, section: str = "") -> list[Block]:
    """Those under that heading of the second level; without one, those before the first."""
    head, *parts = _HEADING.split((ROOT / page).read_text())
    sections = {"": head, **dict(zip(parts[::2], parts[1::2], strict=True))}
    return [Block(*fenced) for fenced in _FENCED.findall(sections[section])]


needs_curl_and_jq = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq"
)
CLIENTS = "docs/clients.md"
START = blocks(CLIENTS, "A session to talk to")
"""What stands before every other section of that page."""


def commands(page: str) -> Iterator[str]:
    """Each `sidecarctl …` of the shell blocks of a page, as it is written."""
    for language, _, text in _FENCED.findall((ROOT / page).read_text()):
        if language == "sh":
            yield from _commands(Parser(_BASH).parse(text.encode()).root_node)


def _commands(node: Node) -> Iterator[str]:
    name = node.child_by_field_name("name") if node.type == "command" else None
    if name is not None and name.text == b"sidecarctl":
        assert node.text is not None
        yield node.text.decode()
    for child in node.children:
        yield from _commands(child)


def mentions(page: str) -> list[str]:
    """Each `sidecarctl …` in the prose of a page."""
    prose = _FENCED.sub("", (ROOT / page).read_text())
    return [" ".join(mention.split()) for mention in _INLINE.findall(prose)]


class Reader:
    """A person with a home and a project of their own, who types what a page says."""

    def __init__(self, daemon: Daemon, home: Path, path: Iterable[Path] = ()) -> None:
        """`path` comes before `sidecarctl` and everything else."""
        self.project = home / "project"
        self.project.mkdir(parents=True)
        # the tests' daemon asks nothing unless somebody says so
        (self.project / ".sidecar").mkdir()
        rules = '[permissions]\nask = ["bash(touch *)", "bash(sleep *)"]\n'
        (self.project / ".sidecar/config.toml").write_text(rules)
        self.home = home
        first = [*map(str, path), str(Path(sys.executable).parent)]
        self.environ = environment(daemon.home, HOME=str(home))
        self.environ["PATH"] = ":".join([*first, self.environ["PATH"]])

    def follow(self, blocks: Iterable[Block], cwd: Path | None = None) -> str:
        """Save the files, run the commands in one shell, which must succeed; what they print."""
        script = ""
        for block in blocks:
            if block.file:
                path = self.project / block.file.replace("~", str(self.home), 1)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "sh":
                script += block.text
        printed = self.home / "printed"  # no pipe: what follows a session ends after it
        with printed.open("wb") as output:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                env=self.environ,
                cwd=cwd or self.project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RUN_S,
                check=False,
            )
        said = printed.read_text()
        assert done.returncode == 0, said[-4000:]
        return said


def agents(blocks: Iterable[Block]) -> set[tuple[str, ...]]:
    """The commands that an editor with these settings would start."""
    return {
        (*shlex.split(agent["command"]), *agent.get("args", ()))
        for block in blocks
        if block.language == "json"
        for named in json.loads(block.text).values()
        for agent in named.values()
    }
