"""`sidecarctl permissions …`: the questions that wait, and what was answered once and for all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from client.cli import exit_codes, question
from client.cli.context import Command, Context, id_argument
from client.cli.question import CHOICES, Json
from client.errors import UsageError
from client.session import Session
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.methods import ENDED_STATES
from sidecar.protocol.paths import ensure_private_dir, places
from sidecar.protocol.remembered import Remembered
from sidecar.protocol.trust import project_root

_PREFIX_CHARS = 4
"""Of a question's id, at least: fewer are more likely a slip than a name."""
_ANY = "-"


async def _ls(context: Context) -> int:
    out = context.out
    async with context.connect() as sidecar:
        pending = await _pending(await sidecar.session(context.args.id))
    if out.format == "json":
        out.value({"pending": pending})
    elif out.format == "jsonl":
        for asked in pending:
            out.value(asked)
    for asked in pending if out.format == "table" else ():
        keys = [question.word(option["optionId"]) for option in asked["options"]]
        shown = [f"{asked['request_id']}  {asked['at']}"]
        shown += (text for text, _ in question.lines(asked, keys))
        out.data("\n".join(shown) + "\n\n")
    return exit_codes.OK


async def _answer(context: Context) -> int:
    args, out = context.args, context.out
    async with context.connect() as sidecar:
        session = await sidecar.session(args.id)
        asked = pick(await _pending(session), args.request)
        option = CHOICES[args.choice]
        if option not in (ids := question.offered(asked)):
            words = ", ".join(map(question.word, ids))
            raise UsageError(f"this may not be answered with {args.choice}, only with {words}")
        await session.answer(asked["request_id"], option, args.reason)
    if out.format == "table":
        out.data(f"{asked['request_id']}\n")
    else:
        out.value({"request_id": asked["request_id"], "option_id": option})
    return exit_codes.OK


async def _pending(session: Session) -> list[Json]:
    """Without waking a session that sleeps: it asks nothing."""
    if session.info["state"] in ("sleeping", *ENDED_STATES):
        return []
    return await session.permissions()


def pick(pending: Sequence[Json], request: str) -> Json:
    """The question of that id or start of an id, or the only one. Raises `SidecarError`."""
    hint = "sidecarctl permissions ls ID"
    if request == _ANY:
        found = list(pending)
    elif len(request) < _PREFIX_CHARS:
        raise UsageError(f"{request!r} is too short to name a question", hint)
    else:
        found = [asked for asked in pending if asked["request_id"].startswith(request)]
    if not found:
        raise UsageError("no such question waits for an answer", hint)
    if len(found) > 1:
        raise SidecarError("ambiguous_id", f"{len(found)} questions are meant", hint)
    return found[0]


async def _rules(context: Context) -> int:
    out, store = context.out, Remembered(places(os.environ).state)
    root = _root(store, context.args.directory)
    rules = store.projects().get(str(root), [])
    if out.format == "table":
        out.table(("RULE",), [(question.visible(rule),) for rule in rules])
    else:
        out.value({"project": str(root), "rules": rules})
    return exit_codes.OK


async def _forget(context: Context) -> int:
    args, state = context.args, places(os.environ).state
    ensure_private_dir(state)
    store = Remembered(state)
    root = _root(store, args.directory)
    forgotten = store.forget(root, args.rule)
    if not forgotten:
        context.out.note(f"nothing like that was remembered for {root}")
    if context.out.format != "table":
        context.out.value({"project": str(root), "forgotten": forgotten})
    return exit_codes.OK


def _root(store: Remembered, directory: Path) -> Path:
    """The directory itself if something is remembered for it, as it may be gone; or its project."""
    itself = Path(os.path.realpath(directory))
    return itself if str(itself) in store.projects() else project_root(itself)


def _answer_arguments(parser: argparse.ArgumentParser) -> None:
    id_argument(parser)
    add = parser.add_argument
    add(
        "request",
        nargs="?",
        default=_ANY,
        metavar="REQ",
        help="the question's id, or a unique start of it; - or none: the only one there is",
    )
    add("choice", choices=CHOICES, help="an option of the question")
    add("--reason", default="", metavar="TEXT", help="for the agent, why it is rejected")


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=Path, nargs="?", default=Path(), metavar="DIR", help="default: here"
    )


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="default: all of the project")


COMMANDS = {
    "permissions ls": Command("the questions of a session that wait", _ls, id_argument),
    "permissions answer": Command("answer one of them", _answer, _answer_arguments),
    "permissions rules": Command(
        "what is always allowed in a project, by earlier answers", _rules, _rules_arguments
    ),
    "permissions forget": Command("allow that no longer", _forget, _forget_arguments),
}
