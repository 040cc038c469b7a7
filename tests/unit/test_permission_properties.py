"""What holds for every command, however it is put together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_worker.permissions.policy import Decision, Request, Rules
from session_worker.permissions.verdict import decide
from sidecar.protocol.rules import parse_rule
from tests.support.permissions import bash, judge, policy, realpath

FRAGMENTS = st.sampled_from(
    ["ls", "cat", "rm", "git", "push", "status", "x", "src/y", "../x", "/etc/passwd", "~", "$X",
     "${x:=$(rm)}", "$(", "`", ")", "(", "{", "}", "'", '"', "\\", "\n", ";", "&", "&&", "||", "|",
     "|&", ">", ">>", "<", "<<EOF\n", "\nEOF\n", "<<<", "<(", "$((", "))", "[[", "]]", "if", "then",
     "fi", "for", "in", "do", "done", "case", "esac", "f()", "time", "!", "coproc", "exec", "eval",
     "sudo", "env", "xargs", "bash -c", "find", "-delete", "-exec", "timeout 5", "PATH=.", "a=1",
     "a[0]=", "-", "--", "-rf", "--output=x", "*", "?", "[a]", "{a,b}", "$'\\x72m'", "#", " ", "\t",
     "\r", "\0", "\u00a0", "\ud800", "é", ".git/hooks/x", "cd", "..", "2>&1", "2>/dev/null"]
)  # fmt: skip
SCRIPTS = st.lists(st.tuples(FRAGMENTS, st.sampled_from(["", " "])), max_size=12).map(
    lambda parts: "".join(fragment + space for fragment, space in parts)
)
COMMANDS = SCRIPTS | st.text(max_size=40)
MODES = st.sampled_from(["ask", "accept-edits", "plan", "auto", "bypass", "no such mode"])
RULES = st.sampled_from(
    ["bash", "*", "bash(rm *)", "bash(git push *)", "bash(ls)", "bash(* x)", "read(**/x)", "edit",
     "edit(src/**)", "read(/etc/**)", "bash(sudo *)", "bash(cat *)"]
)  # fmt: skip
STRICTNESS = [Decision.ALLOW, Decision.ASK, Decision.DENY]


@settings(max_examples=100, deadline=None)
@given(COMMANDS, MODES, RULES, RULES)
def test_every_command_gets_a_verdict(command: str, mode: str, allow: str, deny: str) -> None:
    verdict = judge(bash(command), mode, f"allow: {allow}; deny: {deny}")
    assert verdict.reason
    assert verdict.parts


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["read", "edit", "mcp", "web_fetch", "task", "odd"]), st.text(), MODES)
def test_every_other_call_gets_a_verdict(family: str, text: str, mode: str) -> None:
    request = Request("tool", family, False, paths=(text,), subject=text)
    assert judge(request, mode, "allow: read(a/**), mcp(a*); deny: edit(~/[b), tool").reason


@settings(max_examples=100, deadline=None)
@given(COMMANDS, MODES, RULES, RULES, st.sampled_from(["deny", "ask"]))
def test_one_more_refusing_rule_never_opens_anything(
    command: str, mode: str, allow: str, more: str, kind: str
) -> None:
    before = judge(bash(command), mode, f"allow: {allow}").decision
    after = judge(bash(command), mode, f"allow: {allow}; {kind}: {more}").decision
    assert STRICTNESS.index(after) >= STRICTNESS.index(before)


@settings(max_examples=100, deadline=None)
@given(st.lists(SCRIPTS, min_size=1, max_size=3).map("; ".join), RULES)
def test_what_is_allowed_as_a_whole_is_allowed_in_each_part(command: str, allow: str) -> None:
    rules = f"allow: {allow}"
    verdict = judge(bash(command), rules=rules)
    if verdict.decision is Decision.ALLOW:
        for text, _ in verdict.parts:
            assert judge(bash(text), rules=rules).decision is Decision.ALLOW, text


@settings(max_examples=100, deadline=None)
@given(COMMANDS)
def test_without_rules_mode_ask_allows_only_the_read_only_set(command: str) -> None:
    verdict = judge(bash(command))
    if verdict.decision is Decision.ALLOW:
        assert {by for _, by in verdict.parts} == {"allow:builtin"}
    assert judge(bash(f"{command}\nrm x")).decision is not Decision.ALLOW


@settings(max_examples=100, deadline=None)
@given(COMMANDS)
def test_a_proposal_once_remembered_allows_the_same_call(command: str) -> None:
    verdict = judge(bash(command))
    if verdict.proposals:
        assert verdict.decision is Decision.ASK
        remembered = Rules("session", allow=tuple(map(parse_rule, verdict.proposals)))
        held = policy("ask", remembered)
        assert decide(bash(command), held, None, realpath).decision is Decision.ALLOW


@pytest.mark.parametrize(
    "piece", ["(", "$(", "`", "${", "a|", "<<E\n", "{ ", "a;", "sudo ", "[[ ", "/a"]
)
def test_a_huge_command_is_decided_in_bounded_work(piece: str) -> None:
    assert judge(bash(piece * (100_000 // len(piece)))).decision is not Decision.ALLOW
