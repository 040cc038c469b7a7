"""What the demo model says, in English and Chinese, and how it shows calls and their results.

Used by `intents` and `repair`. Pure. Never says more than a tool has answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from session_worker.demo_model.conversation import Call
from session_worker.demo_model.reply import Json

EXCERPT_LINES = 20
EXCERPT_LINE_CHARS = 200
TITLE_CHARS = 80

Words = dict[str, str]

ENGLISH: Words = {
    "label": "[demo model, a script, not an AI] ",
    "calling": "Calling {names}.",
    "done": "Done. This is what the tools answered:",
    "stopped": "So I stopped; not done: {names}.",
    "failed": "{title} failed",
    "declined": "You declined {title}",
    "more": "… {count} more lines",
    "nothing": "(no output)",
    "no_tool": "None of the tools I am offered can do this; it takes one of: {names}.",
    "help": (
        "I can only follow a fixed script. Ask me to list files, read a file, run a `command`, "
        "create a file with some content (and run it), replace one text with another in a file, "
        "search for a text, show the git branch or status, use a tool by its name, or repair a "
        "failing Python test by trying small changes; several of these in one sentence work too. "
        "For real answers set ANTHROPIC_API_KEY."
    ),
    "plan": "Run the tests|Read the code|Try small changes until the tests pass",
    "trying": "Trying line {line} of {path}: `{new}`.",
    "undoing": "That did not help either; undoing it.",
    "no_tests": "I found no Python tests that I can run, so there is nothing to repair.",
    "passing": "The tests pass already, so there is nothing to repair.",
    "repaired": "The tests pass now. I changed line {line} of {path}:",
    "first_said": "At first the tests said: {said}",
    "now_said": "Now `{command}` says: {said}",
    "tried": "Changes tried: {count}. Those that did not help are undone.",
    "gave_up": (
        "I could not repair this: I tried {count} small changes in {paths}, and none made the "
        "tests pass. All are undone, and a script can do no more. The tests say: {said}"
    ),
    "nowhere": "no file",
    "halted": "So I stopped before the tests passed.",
    "unchanged": "No file is changed.",
    "still_changed": "Line {line} of {path} still has my last try, which should be undone:",
}
CHINESE: Words = {
    "label": "[demo model, 演示脚本，不是 AI] ",
    "calling": "调用 {names}。",
    "done": "完成。工具的结果如下：",
    "stopped": "我已停止；尚未执行：{names}。",
    "failed": "{title} 失败",
    "declined": "你拒绝了 {title}",
    "more": "… 还有 {count} 行",
    "nothing": "（无输出）",
    "no_tool": "我没有可以完成此事的工具；需要其中之一：{names}。",
    "help": (
        "我只会按固定脚本行事：列出文件、读取文件、运行 `命令`、创建文件并写入内容（还可运行它）、"
        "替换文件中的文字、搜索文字、查看 git 分支或状态、按名称使用工具、"
        "用小改动修复失败的 Python 测试；一句话里可以有好几件事。"
        "要得到真正的回答，请设置 ANTHROPIC_API_KEY。"
    ),
    "plan": "运行测试|读取代码|尝试小改动直到测试通过",
    "trying": "尝试修改 {path} 第 {line} 行：`{new}`。",
    "undoing": "这也没有用，撤销它。",
    "no_tests": "没有找到我能运行的 Python 测试，因此没有可修复的。",
    "passing": "测试已经通过，没有可修复的。",
    "repaired": "测试现在通过了。我修改了 {path} 第 {line} 行：",
    "first_said": "最初测试报告：{said}",
    "now_said": "现在 `{command}` 报告：{said}",
    "tried": "尝试的改动：{count}。没有用的都已撤销。",
    "gave_up": (
        "我修不好：我在 {paths} 中尝试了 {count} 个小改动，测试都没有通过。"
        "改动都已撤销，脚本只能做到这里。测试报告：{said}"
    ),
    "nowhere": "任何文件",
    "halted": "测试还没有通过，我已停止。",
    "unchanged": "没有文件被修改。",
    "still_changed": "{path} 第 {line} 行还留着我最后一次尝试，应当撤销：",
}

DECLINED = re.compile(
    r"The user declined this call\. Do not retry it or work around it\.(?: Reason: )?(.*)",
    re.DOTALL,
)


def words_for(prompt: str) -> Words:
    """In the language of the prompt."""
    return CHINESE if re.search(r"[\u4e00-\u9fff]", prompt) else ENGLISH


def report(call: Call, words: Words) -> str:
    """A call and what came of it; longer results are cut, and fenced so that they stay text."""
    title = _title(call.name, call.arguments)
    if call.is_error and (declined := DECLINED.match(call.result)):
        reason = f": {declined[1].strip()}" if declined[1].strip() else "."
        return words["declined"].format(title=title) + reason
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


def calling(calls: Iterable[Json], words: Words) -> str:
    return words["calling"].format(names=titles(calls))


def titles(calls: Iterable[Json]) -> str:
    return ", ".join(_title(call["name"], call["input"]) for call in calls)


def _title(name: str, arguments: Json) -> str:
    """How a call is shown: the command, or the tool and its first argument."""
    first = next(iter(arguments.values()), "")
    shown = first if name == "bash" else f"{name} {first if isinstance(first, str) else ''}".strip()
    line, _, rest = str(shown).partition("\n")
    cut = rest or len(line) > TITLE_CHARS
    return f"`{line[:TITLE_CHARS]}…`" if cut else f"`{line}`"
