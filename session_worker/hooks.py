"""Hooks at work: asks a person's programs about what the session is going to do, or has done.

Called by the worker at each event of `sidecar.protocol.hooks`. A hook makes things stricter and
never laxer: "allow" is a vote, weighed by the caller behind every rule that denies or asks. Never
decides what a verdict means, never blocks the loop, never leaves a process in the hook's group.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fnmatch
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from session_worker.tools import process
from session_worker.tools.command import NON_INTERACTIVE
from session_worker.tools.truncate import clean, shorten, size_text
from sidecar.protocol.bounds import KIB, MIB
from sidecar.protocol.hooks import Hook, locate
from sidecar.protocol.process_tree import SESSION_COOKIE

HOOK_OUTPUT_BYTES = MIB
"""Of each output; who writes more is ended. An `updated_input` may hold a whole file."""
HOOK_READ_BYTES = 64 * KIB
"""Taken at once: a whole pipe."""
HOOK_TEXT_CHARS = 10_000
"""Of the reasons, and of the contexts, of all hooks of one event: the model reads them."""
HOOK_FAILURE_CHARS = 300
"""Of what a broken hook said, in the notice about it."""

DENIES = 2
"""Exit code of a hook that says no; why is on its stderr."""
STRICTEST_FIRST = ("deny", "ask", "allow")


@dataclasses.dataclass(frozen=True)
class HookOutcome:
    """What one hook, or all of an event, say.

    `decision` is `deny`, `ask`, `allow` or None; `reason` explains it to the model and to people,
    `context` is for the model. `updated_input` is for a PreToolUse call and not yet validated.
    `failures` are for people: hooks that could not be run or made no sense.
    """

    decision: str | None = None
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    context: str = ""
    failures: tuple[str, ...] = ()


class HookFailed(Exception):
    """A hook could not say anything, for the reason given."""


class _Answer(BaseModel):
    """Closed: a decision that is misspelt must not pass for none. `block` is what peers say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    decision: Literal["allow", "deny", "block", "ask"] | None = None
    reason: str | None = None
    updated_input: dict[str, Any] | None = None
    context: str | None = None


class Hooks:
    """One session's. `env` is what its tools get."""

    def __init__(
        self, hooks: Sequence[Hook], cwd: Path, env: Mapping[str, str], session_id: str
    ) -> None:
        self._hooks = hooks
        self._cwd = cwd
        self._path = env.get("PATH", os.defpath)
        kept = {k: v for k, v in env.items() if not k.startswith(("ANTHROPIC_", "SIDECAR_"))}
        self._env = kept | NON_INTERACTIVE | {SESSION_COOKIE: session_id}
        self._common = {"session_id": session_id, "cwd": str(cwd)}
        self._broken: set[Hook] = set()

    def problems(self) -> list[str]:
        """Hooks that cannot work as things are, for people, before the first event."""
        found: list[str] = []
        for hook in self._hooks:
            try:
                locate(hook.command, self._cwd, self._path)
            except OSError as error:
                found.append(f"{hook.title}: {error}")
        return found

    async def fire(self, event: str, subject: str, payload: Mapping[str, Any]) -> HookOutcome:
        """Ask every hook of `event` whose matcher fits `subject`; the strictest decision counts.

        One after another, as configured: a later hook sees the `tool_input` that an earlier one
        wrote. Side by side, two changes would be a race, and a check would miss both.
        A broken hook is a failure once, then again after it has worked.
        """
        outcomes: list[HookOutcome] = []
        request = {**self._common, "hook_event_name": event, **payload}
        for hook in self._hooks:
            if hook.event == event and matches(hook.matcher, subject):
                outcomes.append(await self._ask(hook, request))
                if (updated := outcomes[-1].updated_input) is not None:
                    request["tool_input"] = updated
        return combine(outcomes)

    async def _ask(self, hook: Hook, request: dict[str, Any]) -> HookOutcome:
        try:
            program = locate(hook.command, self._cwd, self._path)
            env = self._env | {"SIDECAR_HOOK_EVENT": hook.event}
            stdin = json.dumps(request).encode()
            outcome = understand(hook.event, *await _run(hook, program, stdin, self._cwd, env))
        except (OSError, HookFailed) as error:
            failure = f"{hook.title}: {error}"
            told = hook in self._broken
            self._broken.add(hook)
            return HookOutcome(
                decision="deny" if hook.on_error == "deny" else None,
                reason=failure,
                failures=() if told else (failure,),
            )
        self._broken.discard(hook)
        if outcome.decision is not None and not outcome.reason:
            return dataclasses.replace(outcome, reason=f"{hook.title} gave no reason")
        return outcome


def matches(matcher: str, subject: str) -> bool:
    patterns = [pattern.strip() for pattern in (matcher or "*").split("|")]
    return any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns)


def combine(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """The strictest decision, with the reasons of those that made it.

    An "allow" from before the last change of the input was about another input, and lapses.
    """
    changes = [n for n, outcome in enumerate(outcomes) if outcome.updated_input is not None]
    last = changes[-1] if changes else 0
    votes = [o for n, o in enumerate(outcomes) if n >= last or o.decision != "allow"]
    made = {outcome.decision for outcome in votes}
    decision = next((decision for decision in STRICTEST_FIRST if decision in made), None)
    return HookOutcome(
        decision,
        _joined(vote.reason for vote in votes if decision and vote.decision == decision),
        outcomes[last].updated_input if changes else None,
        _joined(outcome.context for outcome in outcomes),
        tuple(failure for outcome in outcomes for failure in outcome.failures),
    )


def _joined(texts: Iterable[str]) -> str:
    text = "\n".join(filter(None, texts))
    return shorten(text, HOOK_TEXT_CHARS // 2, HOOK_TEXT_CHARS - HOOK_TEXT_CHARS // 2)


def understand(event: str, code: int, stdout: bytes, stderr: bytes) -> HookOutcome:
    """What a hook said by the way it ended. Raises `HookFailed` if that makes no sense."""
    complaint = clean(stderr.decode(errors="replace")).strip()
    if code == DENIES:
        return HookOutcome("deny", complaint)
    if code != 0:
        how = f"exit {code}" if code > 0 else f"ended by signal {-code}"
        raise HookFailed(f"{how}: {complaint}"[:HOOK_FAILURE_CHARS] if complaint else how)
    if not stdout.strip():
        return HookOutcome()
    try:
        answer = _Answer.model_validate_json(stdout)
        json.dumps(answer.updated_input, allow_nan=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "stdout is for JSON alone"
        raise HookFailed(f"{where}: {first['msg']}"[:HOOK_FAILURE_CHARS]) from error
    except ValueError as error:
        raise HookFailed(f"updated_input: {error}") from error
    if event != "PreToolUse" and (answer.decision == "ask" or answer.updated_input is not None):
        raise HookFailed("only a PreToolUse hook may ask, or change an input")
    return HookOutcome(
        "deny" if answer.decision == "block" else answer.decision,
        clean(answer.reason or "").strip(),
        answer.updated_input,
        clean(answer.context or "").strip(),
    )


async def _run(
    hook: Hook, program: str, stdin: bytes, cwd: Path, env: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout, stderr. Raises OSError and `HookFailed`.

    What still runs in the hook's group when it exits is ended too. A process that left the group
    holds nothing up: we wait for an exit, never for the end of a pipe.
    """
    child = _start(hook.command, program, stdin, cwd, env)
    assert child.stdout and child.stderr
    with _gathered(child.stdout, child.kill) as out, _gathered(child.stderr, child.kill) as err:
        try:
            exited = await process.wait_exit(child, hook.timeout_s)
        finally:
            await process.end_group(child.pid)
            child.poll()
    if max(len(out), len(err)) > HOOK_OUTPUT_BYTES:
        raise HookFailed(f"ended: more than {size_text(HOOK_OUTPUT_BYTES)} of output")
    if not exited:
        raise HookFailed(f"timed out after {hook.timeout_s:g}s")
    return child.returncode, bytes(out), bytes(err)


def _start(
    command: Sequence[str], program: str, stdin: bytes, cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Input comes from a file, so that it does not matter whether anybody reads it."""
    with tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        return subprocess.Popen(
            command,
            bufsize=0,
            executable=program,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
            umask=process.UMASK,
        )


@contextlib.contextmanager
def _gathered(pipe: IO[bytes], on_flood: Callable[[], object]) -> Generator[bytearray]:
    """What comes out of `pipe`: complete after the block, or a little over HOOK_OUTPUT_BYTES.

    No file: `echo no > /dev/stderr` would empty it, and scripts say two lines that way.
    """
    loop, fd, text = asyncio.get_running_loop(), pipe.fileno(), bytearray()

    def take() -> None:
        chunk = pipe.read(HOOK_READ_BYTES)
        text.extend(chunk or b"")
        flooded = len(text) > HOOK_OUTPUT_BYTES
        if chunk == b"" or flooded:
            loop.remove_reader(fd)
        if flooded:
            on_flood()

    with pipe:
        os.set_blocking(fd, False)
        loop.add_reader(fd, take)
        try:
            yield text
        finally:
            loop.remove_reader(fd)
            # what came since the last look
            while len(text) <= HOOK_OUTPUT_BYTES and (chunk := pipe.read(HOOK_READ_BYTES)):
                text.extend(chunk)
