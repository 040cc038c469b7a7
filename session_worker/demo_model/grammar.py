"""Finds the steps a prompt asks for, in English and Chinese.

Used by `intents`. A list of patterns, tried from left to right; what no pattern knows is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from session_worker.demo_model import steps
from session_worker.demo_model.conversation import Tools
from session_worker.demo_model.steps import Step

STEPS_MAX = 16
"""Calls one prompt may lead to: more is a text about something else."""
PROMPT_CHARS = 10_000
"""Where reading stops: further on a prompt is material, and patterns cost time."""

QUOTED = (
    r"(?:```(?:[\w+-]*\n)?[\s\S]+?```|`[^`\n]+`|\"[^\"]*\"|“[^”]*”|「[^」]*」|‘[^’]*’"
    r"|'(?:[^'\n]|(?<=\w)'(?=\w))*')"
)
# of a path; ASCII only: in Chinese the words around a path touch it
NAME = r"[A-Za-z0-9_~@+-]"
PATH = (
    rf"(?:{QUOTED}|(?:(?:{NAME}|\.)*/)+(?:(?:{NAME}|\.)*{NAME})?|{NAME}*(?:\.{NAME}+)+"
    rf"|\.{{1,2}}(?![\w.])|(?:Makefile|Dockerfile|README|LICENSE)\b)"
)
PATHS = rf"{PATH}(?:(?:\s*[,、]\s*|\s+and\s+|\s*和\s*){PATH})*"
WORD = rf"(?:{QUOTED}|[^\s，。；,;]+)"
IT = r"(?:it\b|(?:the|this|that)\s+(?:file|script|program)\b|它|(?:这个|该)?(?:文件|脚本|程序))"
JOIN = r"\s*[,.;，。；、]?\s*(?:(?:and|then|also|并且|并|然后|接着|再)\s*)*"
VERB = r"(?:run|execute|list|show|read|search|运行|执行|列出|显示|读取|搜索)"
STOP = r"(?=[.;。；]?\s*(?:\n|$))"
NEXT = rf"(?=\s*[,，.。;；]?\s*(?:and|then|并且?|然后|接着|再)\s*(?:then\s+)?{VERB})"
BODY = rf"(?:{QUOTED}|[^\n]+?(?:{STOP}|{NEXT}))"
COMMAND = (
    rf"(?:{QUOTED}|(?!(?:the|an?|all|my|this|it|that)\b)[a-z0-9_./~][^\n，。；]*?"
    r"(?=[.;]?\s*(?:\n|$)|[，。；]|,?\s+(?:and|then)\s|\s*(?:并且|然后|接着)))"
)
THEN = re.compile(r"\bthen\b|\bafter|然后|接着|再|之后")
NEGATED = re.compile(r"(?:\bnot|n't|\bnever|\bwithout|不要|别|勿)\s*$", re.IGNORECASE)

SUFFIXES = {
    "python": ".py",
    "javascript": ".js",
    "typescript": ".ts",
    "markdown": ".md",
    "json": ".json",
    "yaml": ".yaml",
    "toml": ".toml",
    "text": ".txt",
    "shell": ".sh",
    "rust": ".rs",
    "go": ".go",
    "java": ".java",
}

Found = re.Match[str]
Build = Callable[[Found, Tools], list[Step]]


def plan(prompt: str, tools: Tools) -> list[list[Step]]:
    """The turns a prompt asks for; the steps of one turn are independent of each other."""
    prompt = prompt[:PROMPT_CHARS]
    turns: list[list[Step]] = []
    position, changed = 0, True
    while (found := _next(prompt, position)) and sum(map(len, turns)) < STEPS_MAX:
        match, build = found
        apart = changed or THEN.search(prompt, position, match.start()) is not None
        for step in build(match, tools):
            if step == steps.REPAIR and [step] in turns:
                continue  # "repair this: find the bug, fix it" is one wish
            if apart or step.changes:
                turns.append([])
            turns[-1].append(step)
            apart = changed = step.changes
        position = match.end()
    return turns


def _next(prompt: str, position: int) -> tuple[Found, Build] | None:
    """The leftmost match; of several that start together, the first pattern's."""
    found = [
        (match.start(), order, match, build)
        for order, (pattern, build) in enumerate(INTENTS)
        if (match := _search(pattern, prompt, position))
    ]
    return min(found)[2:] if found else None


def _search(pattern: re.Pattern[str], prompt: str, position: int) -> Found | None:
    matches = (match for match in pattern.finditer(prompt, position))
    return next(
        (m for m in matches if not NEGATED.search(prompt, max(0, m.start() - 10), m.start())), None
    )


def _get(match: Found, name: str) -> str:
    """The group of this name, or `name2` of the other word order, without its quotes."""
    groups = match.groupdict()
    return _unquoted(groups.get(name) or groups.get(f"{name}2") or "")


def _unquoted(raw: str) -> str:
    if fence := re.fullmatch(r"```(?:[\w+-]*\n)?([\s\S]+?)```", raw):
        return fence[1]
    return raw[1:-1] if re.fullmatch(QUOTED, raw) else raw.strip()


def _use_tool(match: Found, tools: Tools) -> list[Step]:
    return [steps.use_tool(_get(match, "name"), _get(match, "words"), tools)]


def _create(match: Found, tools: Tools) -> list[Step]:
    path, words, prints = _get(match, "path"), _get(match, "words"), _get(match, "prints")
    content = f"{words}\n" if words and not words.endswith("\n") else words
    if "hello world function" in words.lower() and path.endswith(".py"):
        content = 'def hello():\n    print("Hello, World!")\n'
    elif prints:
        content = steps.program_that_prints(path, words)
    run = [steps.run_file(path)] if match["run"] else []
    return [steps.create_file(path, content), *run]


def _replace(match: Found, tools: Tools) -> list[Step]:
    old, new = _get(match, "old"), _get(match, "new")
    return steps.replace_text(_get(match, "path"), old, new, tools)


def _list(match: Found, tools: Tools) -> list[Step]:
    words = match[0].lower()
    suffix = re.search(r"\*?(\.\w+)\s+files|\*(\.\w+)", words)
    kind = next(
        (s for k, s in SUFFIXES.items() if re.search(rf"(?<![a-z]){k}(?![a-z])", words)), ""
    )
    found = (suffix[1] or suffix[2]) if suffix else kind
    return [steps.list_files(_get(match, "path") or ".", found)]


def _read(match: Found, tools: Tools) -> list[Step]:
    paths = re.findall(PATH, match.groupdict()["path"] or match.groupdict()["path2"])
    return [steps.read_file(_unquoted(path)) for path in paths]


def _pattern(*forms: str) -> re.Pattern[str]:
    return re.compile("|".join(forms), re.IGNORECASE)


INTENTS: list[tuple[re.Pattern[str], Build]] = [
    (  # fix the failing test | find the bug and fix it | make the tests pass
        _pattern(
            r"\b(?:fix|repair)\b[^,;.!?\n]{0,60}?\b(?:tests?|bugs?|code|repo(?:sitory)?|project"
            r"|fails|broken|failing)\b",
            r"\b(?:bugs?|tests?|fail\w*)\b[^\n]{0,80}?\b(?:fix|repair)\s+(?:it|them|that)\b",
            r"\bmake\s+(?:all\s+|the\s+|my\s+|unit\s+)*tests?\s+pass\b",
            r"(?:修复|修好|修正|修理|修一下)[^，。；！？\n]{0,20}?(?:测试|错误|缺陷|代码|仓库|项目|问题|程序|bug)",
            r"让(?:所有|全部)?(?:的)?测试(?:都)?通过",
        ),
        lambda _match, _tools: [steps.REPAIR],
    ),
    (  # use the MCP tool T with {"a": 1} | use srv__t with some text
        _pattern(
            r"(?:\b(?:use|call|invoke|try)\b|使用|调用|用)\s*(?:the\s+)?(?:mcp\s*)?"
            r"(?:(?:tool|工具)\s*(?P<name>`?[\w.:/-]+`?)|(?P<name2>[\w-]+__[\w-]+|`?[\w.:/-]+`?"
            r"(?=\s*(?:mcp\s*)?(?:tool|工具))))(?:\s*(?:mcp\s*)?(?:tool\b|工具))?"
            rf"(?:[\s,，:：]*(?:with|on|for|参数|输入)(?:\s*(?:为|是|arguments?|input|text))?[\s:：]*"
            rf"(?P<words>\{{.*\}}|{BODY}))?"
        ),
        _use_tool,
    ),
    (  # create X [that prints … | with …] [and run it]
        _pattern(
            r"(?:\b(?:create|make|write|add)\b|创建|新建|建立|写)\s*(?:me\s+)?(?:(?:an?|the)\s+|一?个\s*)?"
            r"(?:(?:new|small|simple|python|shell|bash|text|empty|新的?|空的?|文本)\s*)*"
            r"(?:(?:file|script|program|文件|脚本|程序)\s*)?(?:(?:called|named|名为|名叫|叫做|叫)\s*)?"
            rf"(?P<path>{PATH})\s*(?:的?(?:文件|脚本|程序))?"
            r"(?:[,，]?\s*(?:(?P<prints>(?:(?:that|which|to)\s+)?(?:just\s+|simply\s+)?"
            r"(?:prints?|outputs?|says?)\b|(?:用来|用于|让它|它|会)*(?:打印|输出))"
            r"|(?:with|containing|(?:that|which)\s+contains?|(?:里面)?写入|包含|(?=内容))"
            r"\s*(?:(?:the|this)\s+)?(?:following\s+)?(?:(?:contents?|text|lines?|code)\b|内容)?\s*"
            rf"(?:为|是)?)\s*[:：]?\s*(?P<words>{BODY}))?"
            rf"(?P<run>{JOIN}(?:run|execute|运行|执行)\s*(?:一下)?(?:{IT}|{STOP}))?"
        ),
        _create,
    ),
    (  # replace A with B in X
        _pattern(
            rf"\b(?:replace|change)\s+(?P<old>{WORD})\s+(?:with|by|to)\s+(?P<new>{WORD})\s+in\s+"
            rf"(?:the\s+)?(?:file\s+)?(?P<path>{PATH})",
            rf"(?:把|将|在)\s*(?P<path2>{PATH})\s*(?:文件)?(?:中|里面?)?的?\s*(?:把|将)?\s*"
            rf"(?P<old2>{QUOTED}|[^\s，]+?)\s*(?:替换|换|改)(?:成|为)\s*(?P<new2>{WORD})",
        ),
        _replace,
    ),
    (  # run `cmd` | run the command cmd
        _pattern(
            r"\b(?:run|execute)\s+(?:(?:the\s+)?(?:shell\s+|bash\s+)?(?:command|script|file)\s*:?\s*)?"
            rf"(?P<command>{COMMAND})",
            rf"(?:运行|执行|跑)(?:一下)?\s*(?:命令|指令|脚本|文件)?\s*[:：]?\s*(?P<command2>{COMMAND})",
        ),
        lambda match, _: [steps.run_command(_get(match, "command"))],
    ),
    (  # show the git branch
        _pattern(
            r"\b(?:what|which|show|tell|get|display|check|name|report)\b[^,;.\n]{0,40}?\bbranch\b",
            r"\bgit\s+branch\b",
            r"(?:当前|现在|哪个|什么|查看|显示|git)[^，。；\n]{0,12}?分支",
        ),
        lambda _match, _tools: [steps.git_branch()],
    ),
    (  # git status
        _pattern(
            r"\bgit\s+status\b",
            r"\bstatus\s+of\s+(?:the\s+|this\s+)?(?:git\s+)?repo",
            r"git\s*状态",
        ),
        lambda _match, _tools: [steps.git_status()],
    ),
    (  # list the [Python] files [in X]
        _pattern(
            r"\b(?:list|show|display|what(?:'s)?|which)\b(?:[^,;.!?\n]|\.(?=\w)){0,60}?"
            r"\b(?:files|directory|folder)\b"
            rf"(?:\s+(?:are\s+)?(?:in|inside|under|of)\s+(?:the\s+)?(?P<path>{PATH}))?",
            r"(?:列出|列举|显示|查看|看看)[^，。；,;\n]{0,20}?(?:文件|目录)(?!\s*[\w./`\"“])",
            r"(?:有哪些|有什么)[^，。；,;\n]{0,20}?文件|(?:哪些|什么)[^，。；,;\n]{0,12}?文件",
        ),
        _list,
    ),
    (  # search for X [in Y]
        _pattern(
            r"\b(?:search|grep|look)\s+(?:[^,;.\n]{0,40}?\s)?for\s+(?:the\s+)?(?:(?:word|text|string)\s+)?"
            rf"(?P<words>{WORD})(?:\s+in\s+(?:the\s+)?(?:file\s+)?(?P<path>{PATH}))?",
            rf"(?:在\s*(?P<path2>{PATH})\s*(?:中|里面?)\s*)?(?:搜索|查找)(?:一下)?\s*"
            rf"(?:文本|内容|关键[字词])?\s*(?P<words2>{WORD})",
        ),
        lambda match, _: [
            steps.search_text(_get(match, "words").rstrip(".?!"), _get(match, "path"))
        ],
    ),
    (  # read X [and Y] | what is in X
        _pattern(
            r"\b(?:read|show|cat|open|display|view)\s+(?:me\s+)?(?:(?:the\s+)?contents?\s+of\s+)?"
            rf"(?:the\s+)?(?:file\s+)?(?P<path>{PATHS})",
            rf"(?:\bwhat(?:'s|\s+is)\s+(?:in|inside)\s+(?:the\s+file\s+)?"
            rf"|(?:读取?|查看|打开|显示|看看)(?:一下|下)?\s*(?:文件)?\s*)(?P<path2>{PATHS})",
        ),
        _read,
    ),
    (  # nothing but `cmd`
        re.compile(r"\A\s*`(?P<command>[^`\n]+)`\s*\Z"),
        lambda m, _: [steps.run_command(m["command"])],
    ),
]
"""Earlier entries win where two match at the same place."""
