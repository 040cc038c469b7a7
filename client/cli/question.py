"""A permission question as a person reads it. Pure.

All of it may have been written by whoever the agent listens to. So nothing is taken out of it, as
`printable` does: what a terminal would swallow is still something that would run. And a line that
comes from the question never looks like one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from client.cli.output import BOLD, GREEN, RED, YELLOW

Json = dict[str, Any]
"""Here: a question, which is the data of a `permission_requested` event that was not cut."""
Line = tuple[str, str]
"""Text and its style."""

SHOWN_CHARS = 8_000
"""Of one value of a call's input: more than anybody reads before an answer."""
SHOWN_LINES = 100
"""Of one value; the rest of the question should be in sight, too."""
DIFF_CHARS = 100_000
"""Old and new text together; what a diff of more would cost, nobody would read."""
CHOICES = {
    "once": "allow_once",
    "session": "allow_session",
    "project": "allow_project",
    "reject": "reject_once",
    "reject-always": "reject_always",
}
"""Our words for the options that a question may offer."""
_WORDS = {option: word for word, option in CHOICES.items()}


def visible(text: str) -> str:
    """`text` on one line, with every character that does not print as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def title(question: Json) -> str:
    return visible(question["toolCall"]["title"])


def offered(question: Json) -> list[str]:
    """The ids of its options."""
    return [option["optionId"] for option in question["options"]]


def word(option_id: str) -> str:
    """What `sidecarctl permissions answer` calls an option."""
    return _WORDS.get(option_id, option_id)


def lines(question: Json, keys: Sequence[str]) -> list[Line]:
    """The whole question; `keys` are what the options are called here, in their order."""
    call, why = question["toolCall"], question["_meta"]["sidecar"]
    shown: list[Line] = [(f"permission needed: {title(question)}", BOLD), *_input(call)]
    if why["reason"]:
        shown.append((f"why: {visible(why['reason'])}", ""))
    if len(why["parts"]) > 1:
        parts = (visible(f"{verdict}: {part}") for part, verdict in why["parts"])
        shown += [("parts:", ""), *_block("\n".join(parts))]
    shown += [(f"outside the session's directories: {visible(p)}", RED) for p in why["outside"]]
    width = max(map(len, keys))
    names = (visible(option["name"]) for option in question["options"])
    return shown + [(f"  {k:{width}}  {name}", "") for k, name in zip(keys, names, strict=True)]


def how_to_allow(questions: Iterable[Json], config: str) -> str:
    """What to do so that such calls need no person the next time."""
    rules = dict.fromkeys(rule for q in questions for rule in q["_meta"]["sidecar"]["rules"])
    if not rules:
        return "sidecarctl at a terminal: this is asked every time"
    listed = json.dumps(list(rules), ensure_ascii=False)
    return f"[permissions] allow = {visible(listed)} in {config}, or a session with another --mode"


def _input(call: Json) -> list[Line]:
    diffs = [item for item in call.get("content", ()) if item["type"] == "diff"]
    if diffs:
        return [line for diff in diffs for line in _diff(diff)]
    shown: list[Line] = []
    for name, value in call["rawInput"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if (name, text) == ("command", call["title"]):
            continue
        if name != "command":
            shown.append((f"{visible(name)}:", ""))
        shown += _block(text)
    return shown


def _diff(change: Json) -> list[Line]:
    import difflib  # whoever is asked nothing pays nothing

    path, old, new = change["path"], change.get("oldText") or "", change["newText"]
    if len(old) + len(new) > DIFF_CHARS:
        return [(visible(path), ""), *_block(new)]
    changes = difflib.unified_diff(old.split("\n"), new.split("\n"), path, path, lineterm="")
    return _block("\n".join(changes), {"+": GREEN, "-": RED})


def _block(text: str, styles: dict[str, str] | None = None) -> list[Line]:
    """Line by line; `styles` go by a line's first character."""
    kept = "\n".join(text[:SHOWN_CHARS].split("\n")[:SHOWN_LINES])
    shown = [
        (f"  | {visible(line)}", (styles or {}).get(line[:1], "")) for line in kept.split("\n")
    ]
    if hidden := len(text) - len(kept):
        note = f"{hidden} more characters; all of it: sidecarctl permissions ls ID -o json"
        shown.append((f"  … {note}", YELLOW))
    return shown
