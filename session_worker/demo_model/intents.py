"""The default script: does what a prompt asks for with the tools it is offered, and says what came.

Called by the server for each request. Deterministic and without memory: how far a plan has come
is read from the conversation. Never pretends to be more than a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from session_worker.demo_model.acts import Acts, Outcome, make
from session_worker.demo_model.code import through_code
from session_worker.demo_model.conversation import Conversation, Tools, read
from session_worker.demo_model.directives import (
    Directives,
    decorated,
    failure,
    replaced,
    take_directives,
)
from session_worker.demo_model.grammar import plan
from session_worker.demo_model.repair import repair
from session_worker.demo_model.reply import Answer, Reply, Request, text
from session_worker.demo_model.steps import REPAIR, Step, choose
from session_worker.demo_model.wording import Words, calling, report, titles, words_for

DEMO_MODEL_ID = "demo-scripted"


def demo_script(request: Request) -> Answer:
    """Answers any request; a directive in the prompt acts on the first call made for it."""
    talk = read(request.body)
    prompt, directives = take_directives(talk.prompt)
    loop = _loop(talk) if "loop" in directives else None
    if loop:
        return decorated(loop, directives, request.attempt)
    if talk.rounds:
        kept = {name: value for name, value in directives.items() if name == "slow"}
        return decorated(_answer(request, talk, prompt, directives), kept, request.attempt)
    refused = failure(directives, request.attempt)
    if refused:
        return refused
    reply = replaced(directives, next(iter(talk.tools), None))
    reply = reply or _answer(request, talk, prompt, directives)
    return decorated(reply, directives, request.attempt)


def _answer(request: Request, talk: Conversation, prompt: str, directives: Directives) -> Reply:
    reply = _reply(talk, prompt)
    turns = plan(prompt, talk.tools) if "code" in directives else []
    if not turns or [REPAIR] in turns:  # of a repair nobody knows the calls before they are made
        return reply
    planned = [[call for step in turn if (call := choose(step, talk.tools))] for turn in turns]
    return through_code(reply, request.body, talk, [calls for calls in planned if calls])


def _loop(talk: Conversation) -> Reply | None:
    """One more call, never the same twice where the tool can show it."""
    echo = {"command": f"echo turn {len(talk.rounds) + 1}"}
    step = Step((("bash", echo), ("list_dir", {"path": "."}), ("glob", {"pattern": "*"})))
    call = choose(step, talk.tools)
    return Reply([call]) if call else None


def _reply(talk: Conversation, prompt: str) -> Reply:
    """The plan is played from its start: the conversation answers it as far as it goes."""
    words = words_for(prompt)
    acts = _perform(plan(prompt, talk.tools), talk.tools, words)
    rounds = iter(talk.rounds)
    try:
        content = next(acts)
        for made in rounds:
            content = acts.send(made)
    except StopIteration as end:
        paragraphs = [*end.value, *(report(call, words) for made in rounds for call in made)]
        content = [text("\n".join(paragraphs) or words["help"])]
    first, *calls = content
    label = words["label"] if talk.is_first else ""
    return Reply([text(label + first["text"]), *calls])


def _perform(turns: Sequence[Sequence[Step]], tools: Tools, words: Words) -> Acts[list[str]]:
    """One turn after another, up to one that fails; returns what to report."""
    lacking = [step for step in chain(*turns) if not choose(step, tools)]
    turns = [able for turn in turns if (able := [step for step in turn if choose(step, tools)])]
    paragraphs: list[str] = []
    for at, turn in enumerate(turns, 1):
        acts = repair(tools, words) if turn == [REPAIR] else _perform_turn(turn, tools, words)
        outcome = yield from acts
        paragraphs += outcome.paragraphs
        if not outcome.is_done:
            left = [call for step in chain(*turns[at:]) if (call := choose(step, tools))]
            paragraphs += [words["stopped"].format(names=titles(left))] if left else []
            break
    else:
        if turns and [REPAIR] not in turns:
            paragraphs.insert(0, words["done"])
    if lacking:
        paragraphs.append(_lacking(lacking, words))
    return paragraphs


def _perform_turn(steps: Sequence[Step], tools: Tools, words: Words) -> Acts[Outcome]:
    calls = [call for step in steps if (call := choose(step, tools))]
    made = yield from make(calling(calls, words), calls, tools, words)
    failed = any(call.is_error for call in made)
    return Outcome([report(call, words) for call in made], not failed)


def _lacking(steps: Sequence[Step], words: Words) -> str:
    names = dict.fromkeys(f"`{name}`" for step in steps for name, _ in step.candidates)
    return words["no_tool"].format(names=", ".join(names))
