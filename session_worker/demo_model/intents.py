"""The default script: does what a prompt asks for with the tools it is offered, and says what came.

Called by the server for each request. Deterministic and without memory: how far a plan has come
is read from the conversation. Never pretends to be more than a script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from session_worker.demo_model.conversation import Call, Conversation, Tools, read
from session_worker.demo_model.directives import decorated, failure, replaced, take_directives
from session_worker.demo_model.grammar import plan
from session_worker.demo_model.reply import Answer, Json, Reply, Request, text, tool_use
from session_worker.demo_model.steps import Step

DEMO_MODEL_ID = "demo-scripted"

EXCERPT_LINES = 20
EXCERPT_LINE_CHARS = 200
TITLE_CHARS = 80

ENGLISH = {
    "label": "[demo model, a script, not an AI] ",
    "calling": "Calling {names}.",
    "done": "Done. This is what the tools answered:",
    "stopped": "The tools answered with an error, so I stopped; not done: {names}.",
    "failed": "{title} failed",
    "more": "… {count} more lines",
    "nothing": "(no output)",
    "no_tool": "None of the tools I am offered can do this; it takes one of: {names}.",
    "help": (
        "I can only follow a fixed script. Ask me to list files, read a file, run a `command`, "
        "create a file with some content (and run it), replace one text with another in a file, "
        "search for a text, show the git branch or status, or use a tool by its name; several "
        "of these in one sentence work too. For real answers set ANTHROPIC_API_KEY."
    ),
}
CHINESE = {
    "label": "[demo model, 演示脚本，不是 AI] ",
    "calling": "调用 {names}。",
    "done": "完成。工具的结果如下：",
    "stopped": "工具报告了错误，我已停止；尚未执行：{names}。",
    "failed": "{title} 失败",
    "more": "… 还有 {count} 行",
    "nothing": "（无输出）",
    "no_tool": "我没有可以完成此事的工具；需要其中之一：{names}。",
    "help": (
        "我只会按固定脚本行事：列出文件、读取文件、运行 `命令`、创建文件并写入内容（还可运行它）、"
        "替换文件中的文字、搜索文字、查看 git 分支或状态、按名称使用工具；一句话里可以有好几件事。"
        "要得到真正的回答，请设置 ANTHROPIC_API_KEY。"
    ),
}


def demo_script(request: Request) -> Answer:
    """Answers any request; a directive in the prompt acts on the first call made for it."""
    talk = read(request.body)
    prompt, directives = take_directives(talk.prompt)
    loop = _loop(talk) if "loop" in directives else None
    if loop:
        return decorated(loop, directives, request.attempt)
    if talk.rounds:
        kept = {name: value for name, value in directives.items() if name == "slow"}
        return decorated(_reply(talk, prompt), kept, request.attempt)
    refused = failure(directives, request.attempt)
    if refused:
        return refused
    reply = replaced(directives, next(iter(talk.tools), None)) or _reply(talk, prompt)
    return decorated(reply, directives, request.attempt)


def _loop(talk: Conversation) -> Reply | None:
    """One more call, never the same twice where the tool can show it."""
    echo = {"command": f"echo turn {len(talk.rounds) + 1}"}
    step = Step((("bash", echo), ("list_dir", {"path": "."}), ("glob", {"pattern": "*"})))
    call = _choose(step, talk.tools)
    return Reply([call]) if call else None


def _reply(talk: Conversation, prompt: str) -> Reply:
    words = CHINESE if re.search(r"[\u4e00-\u9fff]", prompt) else ENGLISH
    label = words["label"] if talk.is_first else ""
    turns = plan(prompt, talk.tools)
    lacking = [step for turn in turns for step in turn if not _choose(step, talk.tools)]
    todo = [[call for step in turn if (call := _choose(step, talk.tools))] for turn in turns]
    todo = [calls for calls in todo if calls]
    failed = any(call.is_error for calls in talk.rounds[-1:] for call in calls)
    left = todo[len(talk.rounds) :]
    if left and not failed:
        titles = words["calling"].format(names=_titles(left[0]))
        return Reply([text(label + titles), *left[0]])
    parts = [_report(call, words) for calls in talk.rounds for call in calls]
    if left:
        parts.append(words["stopped"].format(names=_titles(chain.from_iterable(left))))
    elif parts and not failed:
        parts.insert(0, words["done"])
    if lacking:
        parts.append(_lacking(lacking, words))
    return Reply([text(label + ("\n".join(parts) or words["help"]))])


def _choose(step: Step, tools: Tools) -> Json | None:
    """The call of the first candidate whose tool is offered."""
    offered = (tool_use(name, given) for name, given in step.candidates if name in tools)
    return next(offered, None)


def _lacking(steps: Sequence[Step], words: dict[str, str]) -> str:
    names = dict.fromkeys(f"`{name}`" for step in steps for name, _ in step.candidates)
    return words["no_tool"].format(names=", ".join(names))


def _report(call: Call, words: dict[str, str]) -> str:
    title = _title(call.name, call.arguments)
    if call.is_error:
        title = words["failed"].format(title=title)
    lines = [line[:EXCERPT_LINE_CHARS] for line in call.result.strip("\n").splitlines()]
    if len(lines) < 2:
        return f"{title}: {lines[0] if lines else words['nothing']}"
    shown, hidden = lines[:EXCERPT_LINES], lines[EXCERPT_LINES:]
    if hidden:
        shown.append(words["more"].format(count=len(hidden)))
    longest = max(re.findall("`+", "\n".join(shown)), key=len, default="")
    fence = max("```", f"{longest}`", key=len)
    return "\n".join([f"{title}:", fence, *shown, fence])


def _titles(calls: Iterable[Json]) -> str:
    return ", ".join(_title(call["name"], call["input"]) for call in calls)


def _title(name: str, arguments: Json) -> str:
    """How a call is shown: the command, or the tool and its first argument."""
    first = next(iter(arguments.values()), "")
    shown = first if name == "bash" else f"{name} {first}".strip()
    line, _, rest = str(shown).partition("\n")
    cut = rest or len(line) > TITLE_CHARS
    return f"`{line[:TITLE_CHARS]}…`" if cut else f"`{line}`"
