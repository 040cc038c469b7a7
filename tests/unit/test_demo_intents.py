"""What the demo model understands, and that it acts only through the tools it is offered."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model.directives import take_directives
from session_worker.demo_model.grammar import STEPS_MAX, plan
from session_worker.demo_model.intents import demo_script
from session_worker.demo_model.reply import ApiError, Json, Reply, Request, Streamed, tool_use
from session_worker.tools.bash import BASH
from session_worker.tools.edit_file import EDIT_FILE
from session_worker.tools.glob import GLOB
from session_worker.tools.grep import GREP
from session_worker.tools.list_dir import LIST_DIR
from session_worker.tools.read_file import READ_FILE
from session_worker.tools.write_file import WRITE_FILE

LABEL = "[demo model, a script, not an AI]"
ALL = ("bash", "write_file", "read_file", "edit_file", "glob", "grep", "list_dir", "srv__echo")
SPECS = {spec.name: spec for spec in (BASH, READ_FILE, WRITE_FILE, EDIT_FILE, GLOB, GREP, LIST_DIR)}
ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tools(names: Iterable[str]) -> list[Json]:
    return [{"name": n, "input_schema": ECHO if n == "srv__echo" else {}} for n in names]


def user(*blocks: Json | str) -> Json:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {"role": "user", "content": content}


def ask(messages: list[Json], names: Iterable[str] = ("bash",), attempt: int = 1) -> Reply:
    answer = demo_script(Request({"messages": messages, "tools": tools(names)}, attempt))
    assert isinstance(answer, Reply)
    return answer


def calls(reply: Reply) -> list[tuple[str, Json]]:
    blocks = [block for block in reply.content if isinstance(block, dict)]
    return [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]


def words(reply: Reply) -> str:
    blocks = [block for block in reply.content if isinstance(block, dict)]
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def converse(prompt: str, cwd: Path) -> tuple[list[str], str]:
    """Plays an agent with a real bash; returns the commands that were run and the last answer."""
    messages, commands = [user(prompt)], list[str]()
    while made := calls(reply := ask(messages)):
        ids = [f"toolu_{len(messages)}_{n}" for n in range(len(made))]
        messages.append({"role": "assistant", "content": []})
        messages.append({"role": "user", "content": []})
        for call_id, (name, given) in zip(ids, made, strict=True):
            done = subprocess.run(
                ["bash", "-c", given["command"]],
                cwd=cwd,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            commands.append(given["command"])
            messages[-2]["content"].append({**tool_use(name, given), "id": call_id})
            messages[-1]["content"].append(
                {
                    "type": "tool_result",
                    "tool_use_id": call_id,
                    "content": done.stdout,
                    "is_error": done.returncode != 0,
                }
            )
    return commands, words(reply)


WRITE_HELLO = ("write_file", {"path": "hello.py", "content": "print('Hello, World!')\n"})
BRANCH = ("bash", {"command": "git branch --show-current"})


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ('Create a file called hello.py that prints "Hello, World!"', [WRITE_HELLO]),
        ("Create a file called hello.py that prints Hello, World!", [WRITE_HELLO]),
        ("创建一个名为 hello.py 的文件，打印 “Hello, World!”", [WRITE_HELLO]),
        (
            "Create hello.py with a hello world function",
            [
                (
                    "write_file",
                    {"path": "hello.py", "content": 'def hello():\n    print("Hello, World!")\n'},
                )
            ],
        ),
        (
            "Create notes/a.md with:\n```md\n# Title\n\n'quoted' `text`\n```",
            [("write_file", {"path": "notes/a.md", "content": "# Title\n\n'quoted' `text`\n"})],
        ),
        ("新建 a.txt，内容为“你好”", [("write_file", {"path": "a.txt", "content": "你好\n"})]),
        ("List all Python files in this directory", [("glob", {"pattern": "*.py"})]),
        ("列出所有Python文件", [("glob", {"pattern": "*.py"})]),
        ("list *.md files in docs/", [("glob", {"pattern": "*.md", "path": "docs/"})]),
        ("Which files are in `my src`?", [("list_dir", {"path": "my src"})]),
        ("当前目录下有哪些文件？", [("list_dir", {"path": "."})]),
        ("What is the current git branch?", [BRANCH]),
        ("当前 git 分支是什么？", [BRANCH]),
        ("git status please", [("bash", {"command": "git status --short --branch"})]),
        ("list the files and show the git branch", [("list_dir", {"path": "."}), BRANCH]),
        (
            "Read a.txt, b.txt and 'c d'",
            [("read_file", {"path": path}) for path in ("a.txt", "b.txt", "c d")],
        ),
        ("What's in README.md?", [("read_file", {"path": "README.md"})]),
        ("查看文件 a.txt 的内容", [("read_file", {"path": "a.txt"})]),
        ("run `ls -la`", [("bash", {"command": "ls -la"})]),
        ("Please run ls -la | wc -l.", [("bash", {"command": "ls -la | wc -l"})]),
        ("`uname -a`", [("bash", {"command": "uname -a"})]),
        ("执行命令 ls -la。", [("bash", {"command": "ls -la"})]),
        ("execute hello.py", [("bash", {"command": "python3 hello.py"})]),
        ('search for "a.b" in src/', [("grep", {"pattern": r"a\.b", "path": "src/"})]),
        ("搜索 TODO", [("grep", {"pattern": "TODO"})]),
        ("use the MCP tool echo with hi there", [("srv__echo", {"text": "hi there"})]),
        ('调用工具 srv__echo，参数 {"text": "x"}', [("srv__echo", {"text": "x"})]),
        ("replace foo with bar in a.txt", [("read_file", {"path": "a.txt"})]),
        ("把 a.txt 中的 foo 替换为 bar", [("read_file", {"path": "a.txt"})]),
    ],
)
def test_a_prompt_becomes_calls_of_the_best_offered_tools(
    prompt: str, expected: list[tuple[str, Json]]
) -> None:
    made = calls(ask([user(prompt)], ALL))
    assert made == expected
    for name, given in made:
        if name in SPECS:
            SPECS[name].params.model_validate(given)


@pytest.mark.parametrize(
    "prompt",
    [
        "Fix the failing test in this repository",
        "Please find the bug in calc.py, fix it and tell me what it was",
        "run the tests and fix what fails",
        "Repair this repo!",
        "make the tests pass",
        "修复这个仓库里失败的测试",
        "让测试通过",
    ],
)
def test_a_wish_for_a_repair_begins_with_a_run_of_the_tests(prompt: str) -> None:
    [(name, given)] = calls(ask([user(prompt)], ALL))
    assert (name, given["command"]) == ("bash", "python3 -B -m unittest")
    SPECS[name].params.model_validate(given)


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "Who are you?",
        "Please don't run `rm -rf /`",
        "不要运行 `rm -rf /`",
        "Never list files",
        "Don't fix the tests",
        "How do I fix a bad habit?",
        "What would `rm -rf x` do?",
        "run the tests",
        "How do I create good habits?",
        "",
    ],
)
def test_anything_else_is_answered_by_what_the_script_can_do(prompt: str) -> None:
    reply = ask([user(prompt) if prompt else {"role": "user", "content": ""}], ALL)
    assert calls(reply) == []
    assert words(reply).startswith("[demo model")
    assert "ANTHROPIC_API_KEY" in words(reply)


def test_files_are_made_run_and_reported_for_real(tmp_path: Path) -> None:
    prompt = 'Create a file called hello.py that prints "Hello, World!" and run it'
    commands, answer = converse(prompt, tmp_path)
    assert commands[1:] == ["python3 hello.py"]
    assert answer.startswith(LABEL)
    assert "`python3 hello.py`: Hello, World!" in answer


def test_the_prompt_of_the_chinese_lesson_works(tmp_path: Path) -> None:
    (tmp_path / "XXX.py").write_text("print('ran')")
    _, answer = converse("帮我读取下我的目录下有哪些文件，并且执行XXX.py", tmp_path)
    assert "`ls -1A`: XXX.py" in answer
    assert "`python3 XXX.py`: ran" in answer


@pytest.mark.parametrize(
    "nasty", ["it's", "$(touch pwned)", "a\\nb", "%s %d", "-n", "; touch pwned;", "你好", "$HOME"]
)
def test_no_text_of_the_user_reaches_the_shell_unquoted(nasty: str, tmp_path: Path) -> None:
    converse(f"create -x.txt with “old {nasty}”", tmp_path)
    converse(f"replace “{nasty}” with “new {nasty}” in ./-x.txt", tmp_path)
    assert (tmp_path / "-x.txt").read_text() == f"old new {nasty}\n"
    _, found = converse(f"search for “{nasty}” in ./-x.txt", tmp_path)
    assert f"old new {nasty}" in found
    assert not (tmp_path / "pwned").exists()


def test_content_of_several_lines_arrives_whole(tmp_path: Path) -> None:
    content = "print('it''s')\n\nprint(\"$HOME\")\n"
    converse(f"Create the file a.py with:\n```python\n{content}```", tmp_path)
    assert (tmp_path / "a.py").read_text() == content


def test_creating_without_content_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    converse("write a README", tmp_path)
    assert (tmp_path / "README").read_text() == "mine"
    assert calls(ask([user("write a README")], ALL)) == [("bash", {"command": "touch -- README"})]


def test_a_file_that_must_be_read_first_is_read_and_then_written() -> None:
    history = [user("create a.txt with x")]
    write = calls(ask(history, ALL))[0]
    history += result(write, "a.txt was not changed: it exists and was not read; read it first")
    read = calls(ask(history, ALL))[0]
    assert read == ("read_file", {"path": "a.txt"})
    history += result(read, "     1\told\n", is_error=False)
    assert calls(ask(history, ALL)) == [write]
    done = ask([*history, *result(write, "replaced a.txt", is_error=False)], ALL)
    assert "`write_file a.txt`: replaced a.txt" in words(done)
    failed = ask([*history, *result(write, "it has changed; read it again")], ALL)
    assert "`write_file a.txt` failed" in words(failed)


def test_all_matches_are_replaced_in_a_file_that_was_read() -> None:
    history = [user("replace foo with bar in a.txt")]
    history += result(calls(ask(history, ALL))[0], "     1\tfoo foo\n", is_error=False)
    edit = {"old_string": "foo", "new_string": "bar", "replace_all": True}
    assert calls(ask(history, ALL)) == [("edit_file", {"path": "a.txt", "edits": [edit]})]


def test_a_declined_call_ends_the_plan_in_plain_words() -> None:
    history = [user("create a.txt with x, then run `echo never`")]
    declined = "The user declined this call. Do not retry it or work around it."
    history += result(calls(ask(history, ALL))[0], f"{declined} Reason: no files please")
    answer = words(ask(history, ALL))
    assert "You declined `write_file a.txt`: no files please" in answer
    assert "not done: `echo never`" in answer


def test_no_match_is_an_answer_and_not_a_failure(tmp_path: Path) -> None:
    for prompt in ("search for nothing", "list all python files"):
        _, answer = converse(prompt, tmp_path)
        assert "(no output)" in answer
        assert "failed" not in answer


def test_an_error_is_reported_and_ends_the_plan(tmp_path: Path) -> None:
    commands, answer = converse("replace a with b in gone.txt, then run `echo never`", tmp_path)
    assert len(commands) == 1
    assert "failed" in answer
    assert "FileNotFoundError" in answer
    assert "not done: `echo never`" in answer


def test_independent_steps_share_a_turn_and_dependent_ones_do_not() -> None:
    offered = {name: dict[str, Any]() for name in ALL}
    assert [len(turn) for turn in plan("list files, read a.txt and run `pwd`", offered)] == [3]
    assert [len(turn) for turn in plan("list files, then read a.txt", offered)] == [1, 1]
    assert [len(turn) for turn in plan("create a.txt with x and list files", offered)] == [1, 1]
    assert [len(turn) for turn in plan("replace a with b in c.txt", offered)] == [1, 1]


def test_a_plan_is_bounded() -> None:
    assert sum(map(len, plan("list the files and " * 100, {}))) == STEPS_MAX


def test_without_a_fitting_tool_it_says_so() -> None:
    reply = ask([user("search for x")], ["write_file"])
    assert calls(reply) == []
    assert "takes one of: `grep`, `bash`" in words(reply)


def test_tools_that_may_not_be_used_are_not_used() -> None:
    forbidding = {"tool_choice": {"type": "none"}, "tools": tools(ALL)}
    answer = demo_script(Request({"messages": [user("list files")], **forbidding}, 1))
    assert isinstance(answer, Reply)
    assert calls(answer) == []


def test_only_the_first_answer_of_a_conversation_has_the_label() -> None:
    answered = [user("hi"), {"role": "assistant", "content": "x"}]
    assert words(ask([user("hi")])).startswith(LABEL)
    assert not words(ask([*answered, user("hi")])).startswith(LABEL)


def test_a_prompt_after_a_cancelled_one_stands_for_itself() -> None:
    assert calls(ask([user("!stall hi", "run `pwd`")])) == [("bash", {"command": "pwd"})]


def test_an_answer_is_in_the_language_of_the_prompt() -> None:
    assert "脚本" in words(ask([user("你好")]))


def test_a_long_result_is_cut_and_fenced_so_that_it_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("```\n" + "line\n" * 99)
    _, answer = converse("read a.txt", tmp_path)
    assert answer.count("````") == 2
    assert "… 80 more lines" in answer


def result(call: tuple[str, Json], said: str = "ok", *, is_error: bool = True) -> list[Json]:
    call_id = f"toolu_{call[0]}_{len(said)}"
    use = {**tool_use(*call), "id": call_id}
    done = {"type": "tool_result", "tool_use_id": call_id, "content": said, "is_error": is_error}
    return [{"role": "assistant", "content": [use]}, user(done)]


def test_directives_are_taken_out_of_the_prompt() -> None:
    prompt, found = take_directives(
        "!slow 5tps list files !big 2k !429 retry-after=3 !nothing a!cut"
    )
    assert prompt == "list files   !nothing a!cut"
    assert found == {"slow": "5", "big": "2k", "429": "3"}


def test_slow_paces_every_turn() -> None:
    assert ask([user("!slow 5tps run `pwd`")]).tps == 5
    assert ask([user("!slow run `pwd`"), *result(("bash", {"command": "pwd"}))]).tps == 20


def test_overloaded_fails_as_often_as_asked_by_status_and_then_in_band() -> None:
    request = {"messages": [user("!overloaded 2")]}
    first, second, third = (demo_script(Request(request, attempt)) for attempt in (1, 2, 3))
    assert isinstance(first, ApiError)
    assert first.status == 529
    assert isinstance(second, Reply)
    assert second.fault is not None
    assert second.fault.kind == "overloaded"
    assert isinstance(third, Reply)
    assert third.fault is None


def test_a_rate_limit_names_when_to_come_back() -> None:
    answer = demo_script(Request({"messages": [user("!429 retry-after=1")]}, 1))
    assert isinstance(answer, ApiError)
    assert (answer.status, answer.headers) == (429, {"retry-after": "1"})
    assert words(ask([user("!429 retry-after=1")], attempt=2))


@pytest.mark.parametrize("kind", ["cut", "stall"])
def test_a_broken_stream_is_whole_at_the_next_attempt(kind: str) -> None:
    broken, whole = (ask([user(f"!{kind} hi")], attempt=attempt) for attempt in (1, 2))
    assert broken.fault is not None
    assert broken.fault.kind == kind
    assert whole.fault is None


def test_max_tokens_cuts_the_last_block() -> None:
    reply = ask([user("!max_tokens run `echo a long command`")])
    cut = reply.content[-1]
    assert isinstance(cut, Streamed)
    assert cut.start["type"] == "tool_use"
    assert reply.stop_reason == "max_tokens"


def test_a_refusal_carries_its_details() -> None:
    reply = ask([user("!refusal")])
    assert reply.stop_reason == "refusal"
    assert reply.deltas[-1]["stop_details"]["type"] == "refusal"


def test_bad_json_is_sent_once_and_the_error_reported() -> None:
    broken = ask([user("!badjson")]).content[0]
    assert isinstance(broken, Streamed)
    assert broken.start["name"] == "bash"
    after = ask([user("!badjson"), *result(("bash", {"INVALID_JSON": "{"}))])
    assert "INVALID" not in str(calls(after))
    assert calls(after) == []


def test_a_loop_never_ends_and_never_repeats_itself() -> None:
    history = [user("!loop")]
    first = calls(ask(history))[0]
    second = calls(ask([*history, *result(first)]))[0]
    assert first != second


def test_big_is_as_big_as_asked() -> None:
    assert len(words(ask([user("!big 200k")]))) == 200_000


def test_thinking_comes_before_the_rest() -> None:
    kinds = [block["type"] for block in ask([user("!thinking run `pwd`")]).content]
    assert kinds == ["thinking", "text", "tool_use"]
