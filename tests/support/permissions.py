"""Requests and policies for tests of the permission engine, over a file system that is a table."""

from __future__ import annotations

import os.path
from pathlib import Path

from session_worker.permissions.policy import Decision, Policy, Request, Rules, Verdict
from session_worker.permissions.verdict import decide
from sidecar.protocol.rules import parse_rule

ROOT = Path("/w/repo")
HOME = Path("/home/u")
STATE = HOME / ".local/state/sidecar"
LINKS = {
    "/w/repo/away": "/etc",
    "/w/repo/secret": "/w/repo/.env",
    "/w/repo/hooks": "/w/repo/.git/hooks",
    "/w/repo/notes": "/w/repo/docs/notes",
    "/home/u/.bashrc": "/w/repo/dotfiles/bashrc",
}


def realpath(path: str) -> str:
    """As `os.path.realpath` over LINKS: component by component, `..` after the links."""
    if "\0" in path:
        raise ValueError("embedded null byte")
    done = "/"
    for part in path.split("/"):
        done = os.path.normpath(f"{done.rstrip('/')}/{part}")
        done = LINKS.get(done, done)
    return done


def layer(text: str, source: str = "user") -> Rules:
    """`deny: read(.env); allow: bash(pytest *), edit(src/**)` as a layer."""
    lists: dict[str, tuple[str, ...]] = {}
    for line in filter(None, text.split("; ")):
        kind, _, rules = line.partition(": ")
        lists[kind] = tuple(rules.split(", "))
    parsed = {kind: tuple(map(parse_rule, rules)) for kind, rules in lists.items()}
    return Rules(source, **parsed)


def policy(mode: str = "ask", *layers: Rules, rejected: str = "", trusted: bool = True) -> Policy:
    rejects = tuple(parse_rule(text) for text in rejected.split(", ") if text)
    return Policy(mode, layers, (ROOT, Path("/w/lib")), HOME, (STATE,), trusted, rejects)


def judge(
    request: Request, mode: str = "ask", rules: str = "", hook: Decision | None = None
) -> Verdict:
    return decide(request, policy(mode, layer(rules)), hook, realpath)


def bash(command: str, cwd: str | None = None) -> Request:
    return Request("bash", "bash", False, command=command, cwd=Path(cwd) if cwd else ROOT)


def edit(*paths: str) -> Request:
    return Request("edit_file", "edit", False, paths=paths)


def read(*paths: str) -> Request:
    return Request("read_file", "read", True, paths=paths)
