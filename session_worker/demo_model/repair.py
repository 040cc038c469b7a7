"""Repairs a failing Python repository as far as a script can: run the tests, read the code they
fail in, try small changes one at a time until the tests pass, report.

Called by `intents`. What it knows it has from the results of its calls. Never changes a test, keeps
no change that did not help, and stops at the first call that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import merge
from itertools import islice

from session_worker.demo_model import steps
from session_worker.demo_model.acts import Acts, Outcome, make
from session_worker.demo_model.conversation import Call, Tools
from session_worker.demo_model.mutations import Change, changes, imported, names_used
from session_worker.demo_model.reply import Json, tool_use
from session_worker.demo_model.steps import Step, choose
from session_worker.demo_model.verdicts import end_of, frames, is_test, summary, why
from session_worker.demo_model.wording import Words, calling, report

RUNNERS = ("unittest", "unittest discover -s tests", "pytest -q -p no:cacheprovider")
"""Tried in this order until one finds tests; none leaves files behind."""
TRIES_MAX = 40
"""Changes tried: two turns each, and a run has a hundred."""
FILES_MAX = 12
"""Files read: the tests that failed, and what they import."""
PLAN_TOOL = "todo_write"
TEST, READ, TRY, DONE = range(4)
"""The tasks of the plan."""
NO_RESULT = Call("", {}, "", is_error=True)


def repair(tools: Tools, words: Words) -> Acts[Outcome]:
    """Done if the tests pass in the end."""
    runner, run = RUNNERS[0], NO_RESULT
    for runner in RUNNERS:
        run = yield from _run(runner, tools, words, TEST if runner == RUNNERS[0] else None)
        if end_of(run) != "no_tests":
            break
    match end_of(run):
        case "passed":
            return Outcome([words["passing"], report(run, words)], is_done=True)
        case "no_tests":
            return Outcome([words["no_tests"], report(run, words)], is_done=False)
        case "not_run":
            return _halted(run, None, words)
        case "failed":
            sources = yield from _read(run.result, tools, words)
            return (yield from _try(runner, run, sources, tools, words))


def _read(output: str, tools: Tools, words: Words) -> Acts[dict[str, str]]:
    """The files that the output names, and what they import; one that cannot be read is empty."""
    [listing, *_] = yield from _do([steps.find_python()], tools, words, READ)
    files = re.findall(r"^(?:\./)?(.+\.py)$", listing.result, re.MULTILINE)
    sources: dict[str, str] = {}
    wanted = [file for file, _ in frames(output, files)]
    while wanted := [*dict.fromkeys(wanted)][: FILES_MAX - len(sources)]:
        made = yield from _do([steps.number_lines(path) for path in wanted], tools, words)
        found = {path: _text(call.result) for path, call in zip(wanted, made, strict=False)}
        sources |= found
        named = [file for text in found.values() for file in imported(text, files)]
        wanted = [file for file in named if file not in sources]
    return sources


def _text(numbered: str) -> str:
    """Of a file that was read; what stands behind its last line is not the file's."""
    lines: list[str] = []
    for line in numbered.split("\n"):
        match = re.fullmatch(r" *(\d+)\t(.*)", line)
        if not match or int(match[1]) != len(lines) + 1:
            break
        lines.append(match[2])
    return "\n".join(lines)


@lru_cache(maxsize=1)
def _guesses(output: str, files: tuple[tuple[str, str], ...]) -> list[Change]:
    """Changes to what is tested, the likeliest of all files first. Kept for the next request, which
    plays the same repair one call further: source of a thousand lines takes a tenth of a second."""
    sources = dict(files)
    named = frames(output, sources)
    names = {
        name for path, line in named if is_test(path) for name in names_used(sources[path], line)
    }
    guesses = [
        changes(path, text, {line for file, line in named if file == path}, names)
        for path, text in files
        if not is_test(path)
    ]
    return [*islice(merge(*guesses, key=lambda change: change.rank), TRIES_MAX)]


def _try(
    runner: str, first: Call, sources: Mapping[str, str], tools: Tools, words: Words
) -> Acts[Outcome]:
    standing: Change | None = None
    count = 0
    for count, change in enumerate(_guesses(first.result, tuple(sources.items())), 1):
        stage = TRY if count == 1 else None
        refused, standing = yield from _change(standing, change, tools, words, stage)
        if refused:
            return _halted(refused, standing, words)
        run = yield from _run(runner, tools, words)
        match end_of(run):
            case "passed":
                yield from _do([], tools, words, DONE)
                return Outcome(_success(first, run, change, count, words), is_done=True)
            case "not_run":
                return _halted(run, standing, words)
            case _:
                pass
    refused, standing = yield from _change(standing, None, tools, words)
    if refused:
        return _halted(refused, standing, words)
    paths = ", ".join(path for path in sources if not is_test(path)) or words["nowhere"]
    said = why(first.result)
    return Outcome([words["gave_up"].format(count=count, paths=paths, said=said)], is_done=False)


def _change(
    standing: Change | None,
    change: Change | None,
    tools: Tools,
    words: Words,
    stage: int | None = None,
) -> Acts[tuple[Call | None, Change | None]]:
    """Undoes the one that stands and makes the other: in one call if they are in one file, for
    each call is a question to somebody. Answers the call that failed, and which stands now."""
    texts: dict[str, list[tuple[str, str]]] = {}
    if standing:
        texts.setdefault(standing.path, []).append((standing.new, standing.old))
    if change:
        texts.setdefault(change.path, []).append((change.old, change.new))
    for path, pairs in texts.items():
        is_new = change is not None and change.path == path
        say = words["undoing"]
        if change and is_new:
            say = words["trying"].format(line=change.line, path=path, new=change.becomes)
        [made, *_] = yield from _do([steps.edit_file(path, pairs)], tools, words, stage, say)
        if made.is_error:
            return made, standing
        standing = change if is_new else None
    return None, standing


def _run(runner: str, tools: Tools, words: Words, stage: int | None = None) -> Acts[Call]:
    [run, *_] = yield from _do([steps.run_tests(runner)], tools, words, stage)
    return run


def _do(
    wanted: Sequence[Step],
    tools: Tools,
    words: Words,
    stage: int | None = None,
    say: str = "",
) -> Acts[list[Call]]:
    """Makes these calls, and with them shows where the plan stands, if that changes; at least one
    result, even if somebody took a call out of the conversation."""
    calls = [call for step in wanted if (call := choose(step, tools))]
    if stage is not None and PLAN_TOOL in tools:
        calls.insert(0, tool_use(PLAN_TOOL, {"todos": _todos(stage, words)}))
    if not calls:
        return [NO_RESULT]
    made = yield from make(say or calling(calls, words), calls, tools, words)
    return [call for call in made if call.name != PLAN_TOOL] or [NO_RESULT]


def _todos(stage: int, words: Words) -> list[Json]:
    """The tasks before `stage` are done, and it is under way."""
    tasks = words["plan"].split("|")
    states = ["completed"] * stage + ["in_progress"] + ["pending"] * len(tasks)
    return [{"content": task, "status": state} for task, state in zip(tasks, states, strict=False)]


def _success(first: Call, run: Call, change: Change, count: int, words: Words) -> list[str]:
    command = run.arguments.get("command", "")
    return [
        words["repaired"].format(line=change.line, path=change.path),
        _diff(change),
        words["first_said"].format(said=why(first.result)),
        words["now_said"].format(command=command, said=summary(run.result)),
        words["tried"].format(count=count),
    ]


def _halted(call: Call, standing: Change | None, words: Words) -> Outcome:
    paragraphs = [report(call, words), words["halted"]]
    if standing:
        where = words["still_changed"].format(line=standing.line, path=standing.path)
        return Outcome([*paragraphs, where, _diff(standing)], is_done=False)
    return Outcome([*paragraphs, words["unchanged"]], is_done=False)


def _diff(change: Change) -> str:
    removed = [f"- {change.was}"] if change.was else []
    return "\n".join(["```diff", *removed, f"+ {change.becomes}", "```"])
