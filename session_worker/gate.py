"""Whether a call may run: hooks, then the rules, then a person. Nobody else opens this gate.

`permissions.decide` judges; here what it says is done: let through, refuse, or ask and remember.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from session_worker import permission_request as asked
from session_worker import updates
from session_worker.core import SessionCore
from session_worker.hooks import HookOutcome, Hooks
from session_worker.memory import Memory
from session_worker.permission_request import (
    EXPIRED,
    KINDS,
    UNATTENDED,
    Answer,
    PermissionRequest,
)
from session_worker.permissions.policy import Decision, Policy, Request, Verdict
from session_worker.permissions.verdict import decide
from session_worker.tools.confine import Refused
from session_worker.tools.dispatch import ToolCall, check
from session_worker.tools.spec import FileChange, ToolContext, ToolResult, ToolSpec
from session_worker.transcript import TranscriptFull
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError

DECLINED = "The user declined this call. Do not retry it or work around it."
NOBODY = (
    "This call needs a permission, and nobody was there to give it. Do not work around it; "
    "do what you can without it, and say what is left."
)
TOO_LATE = (
    "nobody answered in time; the call was not run. Code waits only minutes for a call: made "
    "directly, it waits for an answer."
)


class Gate:
    """One session's."""

    def __init__(
        self,
        core: SessionCore,
        tools: Mapping[str, ToolSpec[Any]],
        policy: Policy,
        memory: Memory,
        hooks: Hooks,
        context: ToolContext,
    ) -> None:
        """`context` is that of every call, before its permission."""
        self._core = core
        self._tools = tools
        self._policy = policy
        self._memory = memory
        self._hooks = hooks
        self._context = context
        self._unanswered_in: str | None = None

    @property
    def unanswered(self) -> bool:
        """Whether a call of the run under way went unasked, where that ends the run."""
        run = self._core.current
        return run is not None and run.run_id == self._unanswered_in

    async def admit(self, call: ToolCall, run_id: str, repeats: int) -> ToolCall | str:
        """The call to run, perhaps changed by a hook; or why not, said to the model. `repeats` is
        how often in a row it was asked for."""
        hooked = await self._hooks.fire("PreToolUse", call.spec.name, tool_payload(call))
        self.heard(hooked)
        if hooked.updated_input is not None:
            use = {"id": call.id, "name": call.spec.name, "input": hooked.updated_input}
            changed = check(use, self._tools)
            if isinstance(changed, ToolResult):
                return f"a hook changed the input, and then: {changed.content}"
            shown = json.dumps(hooked.updated_input)[: bounds.ERROR_TEXT_CHARS]
            said = f"[a hook changed the input to {shown}]\n"
            call = dataclasses.replace(changed, context=said, until=call.until)
        call = dataclasses.replace(call, context=(call.context + hooked.context).strip())
        vote = Decision(hooked.decision) if hooked.decision else None
        verdict = await self._judge(call, vote, repeats)
        if hooked.reason and verdict.decision is vote:
            verdict = dataclasses.replace(verdict, reason=hooked.reason)
        match verdict.decision:
            case Decision.ALLOW:
                return _granted(call, verdict)
            case Decision.DENY:
                return verdict.reason
            case Decision.ASK:
                return await self._ask(call, verdict, run_id)

    def hides(self, path: Path) -> bool:
        """Whether a rule, not the mode, keeps the model from reading `path` unasked."""
        request = Request("read_file", "read", True, paths=(str(path),))
        return (
            decide(request, dataclasses.replace(self._policy, mode="bypass")).decision
            is not Decision.ALLOW
        )

    def _rules(self, mode: str) -> Policy:
        """As they are now: what people remembered may have grown."""
        return dataclasses.replace(
            self._policy,
            mode=mode,
            layers=(*self._policy.layers, *self._memory.layers()),
            rejected=self._memory.rejected(),
        )

    async def _judge(self, call: ToolCall, vote: Decision | None, repeats: int) -> Verdict:
        if call.spec.family is None:  # nothing that rules are about
            verdict = Verdict(vote or Decision.ALLOW, "a hook", ())
        else:
            policy = self._rules(self._core.mode)
            verdict = await asyncio.to_thread(decide, self._request(call), policy, vote)
        if verdict.decision is not Decision.ALLOW or self._core.mode == "bypass":
            return verdict
        if repeats >= bounds.LOOP_ASK_CALLS:
            often = f"the agent makes this very call for the {repeats}th time in a row"
            verdict = dataclasses.replace(
                verdict, decision=Decision.ASK, reason=often, proposals=()
            )
        return verdict

    def _request(self, call: ToolCall) -> Request:
        spec, params = call.spec, call.params
        command = getattr(params, "command", None) if spec.family == "bash" else None
        workdir = getattr(params, "workdir", None) if command is not None else None
        return Request(
            tool=spec.name,
            family=spec.family or "",
            read_only=spec.read_only,
            command=command,
            cwd=Path(os.path.realpath(self._context.shell.cwd / (workdir or ""))),
            paths=tuple(spec.paths(params)),
            subject=_subject(call),
        )

    async def _ask(self, call: ToolCall, verdict: Verdict, run_id: str) -> ToolCall | str:
        shown = self._shown(call)
        if (preview := call.spec.preview) is not None:
            context = dataclasses.replace(self._context, granted=frozenset(verdict.outside))
            change = await asyncio.to_thread(self._change, partial(preview, call.params, context))
            shown |= {"content": [updates.diff(change)]} if change else {}
        request = PermissionRequest(run_id, shown, _options(verdict), _why(verdict))
        answer = await self.put(request, bounds.CODE_ASK_S if call.until is not None else None)
        self._remember(answer, verdict)
        if answer.allows:
            return _granted(call, verdict)
        if answer.outcome == UNATTENDED:
            return NOBODY
        if answer.outcome == EXPIRED:
            return TOO_LATE
        return DECLINED + (f" Reason: {answer.reason}" if answer.reason else "")

    async def put(self, request: PermissionRequest, within_s: float | None = None) -> Answer:
        """Put a question to people; where nobody chooses an answer, its run may end."""
        answer = await self._core.requests.ask(request, within_s)
        if answer.outcome == UNATTENDED:
            if self._core.spec.permissions.headless == "fail":
                self._unanswered_in = request.run_id
        elif (
            answer.outcome != EXPIRED
            and answer.option_id is None
            and (run := self._core.find(request.run_id))
        ):
            self._core.ask_to_cancel(run)
        return answer

    def _change(self, preview: Callable[[], FileChange | None]) -> FileChange | None:
        """What a call would do to a file; None if that is too much to be shown, or of a file that
        the rules hide."""
        try:
            change = preview()
        except (Refused, OSError):
            return None  # the tool itself will say so
        if change is None or self.hides(change.path):
            return None
        is_short = len(change.old or "") + len(change.new) <= bounds.QUESTION_DIFF_CHARS
        return change if is_short else None

    def heard(self, hooked: HookOutcome) -> list[str]:
        """Tells people of hooks that failed; answers the words of those that object."""
        for failure in hooked.failures:
            self._core.notice("warning", failure)
        return [hooked.reason] if hooked.decision == "deny" else []

    def _remember(self, answer: Answer, verdict: Verdict) -> None:
        try:
            self._keep(answer, verdict)
        except (TranscriptFull, SidecarError, OSError) as error:
            self._core.notice(
                "error", f"The answer counts this once and is not remembered: {error}"
            )

    def _keep(self, answer: Answer, verdict: Verdict) -> None:
        match answer.option_id:
            case asked.ALLOW_SESSION:
                self._memory.remember(verdict.proposals, allows=True)
            case asked.ALLOW_PROJECT:
                self._memory.allow_in_project(verdict.proposals)
            case asked.REJECT_ALWAYS:
                self._memory.remember(verdict.proposals, allows=False)
            case _:
                pass

    def _shown(self, call: ToolCall) -> dict[str, Any]:
        return {
            "toolCallId": call.id,
            **call.shown(self._policy.roots[0]),
            "status": "pending",
            "rawInput": call.params.model_dump(mode="json", exclude_unset=True),
        }


def tool_payload(call: ToolCall) -> dict[str, Any]:
    """What a hook is told of a call."""
    return {
        "tool_name": call.spec.name,
        "tool_use_id": call.id,
        "tool_input": call.params.model_dump(mode="json", exclude_unset=True),
    }


def _subject(call: ToolCall) -> str | None:
    """What rules of its family are about, where that is neither a command nor a file."""
    match call.spec.family:
        case "mcp":
            return call.spec.name
        case "web_fetch":
            return getattr(call.params, "url", None)
        case _:
            return None


def _granted(call: ToolCall, verdict: Verdict) -> ToolCall:
    return dataclasses.replace(call, granted=frozenset(verdict.outside))


def _options(verdict: Verdict) -> list[dict[str, Any]]:
    """What may be answered; what must not be remembered is not offered to be."""
    names = {asked.ALLOW_ONCE: "Allow once", asked.REJECT_ONCE: "Reject"}
    if rules := ", ".join(f"`{rule}`" for rule in verdict.proposals):
        names = {
            asked.ALLOW_ONCE: "Allow once",
            asked.ALLOW_SESSION: f"Allow {rules} this session",
            asked.ALLOW_PROJECT: f"Always allow {rules} in this project",
            asked.REJECT_ONCE: "Reject",
            asked.REJECT_ALWAYS: f"Reject {rules} this session",
        }
    return [
        {"optionId": option, "name": name, "kind": KINDS[option]} for option, name in names.items()
    ]


def _why(verdict: Verdict) -> dict[str, Any]:
    return {
        "reason": verdict.reason,
        "parts": [list(part) for part in verdict.parts],
        "rules": list(verdict.proposals),
        "outside": [str(path) for path in verdict.outside],
    }
