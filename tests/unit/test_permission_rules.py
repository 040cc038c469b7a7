"""Rules: what they may say, what they are about, and which ones are offered for remembering."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_worker.permissions.path_rules import may_meet
from session_worker.permissions.policy import Decision, Request, Verdict
from session_worker.permissions.verdict import decide
from sidecar.protocol.rules import RULE_CHARS, Rule, parse_rule
from tests.support.permissions import STATE, bash, edit, judge, layer, policy, read, realpath


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("bash", Rule("bash")),
        ("*", Rule("*")),
        (" bash( git status * ) ", Rule("bash", "git status *")),
        ("bash(git log:*)", Rule("bash", "git log:*")),
        ("bash(echo (x))", Rule("bash", "echo (x)")),
        ("read(**/.env*)", Rule("read", "**/.env*")),
        ("edit(~/x y/**)", Rule("edit", "~/x y/**")),
        ("web_fetch(domain:*.python.org)", Rule("web_fetch", "domain:*.python.org")),
        ("mcp(github__delete_*)", Rule("mcp", "github__delete_*")),
        ("task(review)", Rule("task", "review")),
        ("write_file(src/**)", Rule("write_file", "src/**")),
        ("github__get_issue", Rule("github__get_issue")),
    ],
)
def test_a_rule_is_a_family_or_tool_with_or_without_a_spec(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write family(spec), such as bash(git status *)"),
        ("bash(ls", "is no rule"),
        ("bash ls", "is no rule"),
        ("bash()", "write 'bash' for all of it, or bash(git status *)"),
        ("Bash(ls)", "is called 'bash' here"),
        ("WebFetch(domain:x)", "is called 'web_fetch' here"),
        ("Write(x)", "is called 'edit' here: edit(src/**)"),
        ("mcp__github__x", "would match nothing; write mcp(github__delete_*)"),
        ("*(x)", "takes no brackets"),
        ("bash(echo 'x)", "no closing quotation"),
        ("bash(ls\nrm)", "line break"),
        ("web_fetch(https://x.org)", "web_fetch(domain:*.python.org)"),
        ("web_fetch(domain:x.org/y)", "only a domain"),
        ("mcp(github.x)", "server__tool"),
        ("edit(!x)", "cannot be excepted"),
        ("edit(../x)", "would match nothing"),
        ("bash(" + "x" * RULE_CHARS + ")", "at most"),
    ],
)
def test_a_bad_rule_says_what_is_wrong_and_shows_a_good_one(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_rule(text)
    assert says in str(caught.value)


def allowed(request: Request, rules: str) -> bool:
    return judge(request, rules=f"allow: {rules}").decision is Decision.ALLOW


def denied(request: Request, rules: str) -> bool:
    return judge(request, "bypass", f"deny: {rules}").decision is Decision.DENY


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ("bash(x git *)", ["x git", "x git a b"], ["x", "x gita", "y x git"]),
        ("bash(x git:*)", ["x git", "x git a b"], ["x gita"]),
        ("bash(x * y)", ["x a y", "x 'a b' y"], ["x y", "x a b y", "x $A y", "x a* y"]),
        ("bash(x)", ["x", "'x'", "\\x"], ["x y"]),
        ("bash(x '*' [*])", ["x a '*'"], ["x a b", "x a *"]),
        ('bash(x "a b")', ["x 'a b'", "x a\\ b"], ["x a b"]),
        ("bash(x-* y)", ["x-1 y"], ["x y", "/bin/x-1 y"]),
        ("bash(x --n=* *)", ["x --n=1", "x --n=1 b"], ["x --n 1"]),
        ("bash(timeout *)", ["timeout 5 x"], ["x"]),
    ],
)
def test_a_command_is_matched_word_by_word(rule: str, yes: list[str], no: list[str]) -> None:
    assert [command for command in yes if not allowed(bash(command), rule)] == []
    assert [command for command in no if allowed(bash(command), rule)] == []


@pytest.mark.parametrize(
    ("rule", "allows", "denies", "neither"),
    [
        ("edit(src/**)", ["src/a", "src/a/b", "src"], ["docs/src/a"], ["srcs/a", "a"]),
        ("edit(src)", ["src", "src/a"], ["docs/src/a"], ["srcs/a"]),
        ("edit(*.py)", ["a.py"], ["src/a.py"], ["a.pyc"]),
        ("edit(**/*.py)", ["a.py", "src/a.py"], [], ["src/a.txt"]),
        ("edit(a/*/c)", ["a/b/c"], ["x/a/b/c"], ["a/c", "a/b/b/c"]),
        ("edit(/w/lib/**)", ["/w/lib/a", "../lib/a"], [], ["/w/library/a", "lib/a"]),
        ("edit(/w/repo/notes/**)", ["docs/notes/a", "notes/a"], [], ["a"]),
        ("edit(~/x/**)", ["/home/u/x/a"], [], ["/home/u/y", "x/a"]),
        ("edit(./src/)", ["src/a"], ["b/src/a"], ["a"]),
        ("edit", ["a", "/tmp/a"], [], []),
    ],
)
def test_a_path_rule_allows_at_the_root_and_refuses_at_any_depth(
    rule: str, allows: list[str], denies: list[str], neither: list[str]
) -> None:
    assert [path for path in allows if not allowed(edit(path), rule)] == []
    assert [path for path in denies + neither if allowed(edit(path), rule)] == []
    assert [path for path in allows + denies if not denied(edit(path), rule)] == []
    assert [path for path in neither if denied(edit(path), rule)] == []


def test_a_file_is_refused_by_each_of_its_names_and_allowed_only_by_its_real_one() -> None:
    assert denied(read("secret"), "read(secret)")
    assert denied(read("secret"), "read(.env)")
    assert denied(read("SECRET"), "read(secret)")
    assert allowed(read("away/hosts"), "read(/etc/**)")
    assert not allowed(read("away/hosts"), "read(away/**)")
    assert not denied(read("x"), "read(w/**)")  # directories above a root are not part of names


def test_a_rule_for_a_tool_is_about_no_other_one() -> None:
    assert denied(edit("x"), "edit_file(x)")
    assert not denied(edit("x"), "write_file(x)")
    assert denied(edit("x"), "*")


FETCH = [
    ("https://docs.python.org/3/", True),
    ("HTTP://DOCS.PYTHON.ORG:8080?q", True),
    ("https://docs.python.org.", True),
    ("https://python.org", False),
    ("https://docs.python.org.evil.com", False),
    ("https://docs.python.org@evil.com", False),
    ("https://evil.com\\@docs.python.org", False),
    ("https://evil.com#.python.org", False),
    ("https://dоcs.python.org", False),
    ("ftp://docs.python.org", False),
    ("https://docs.python.org\n", False),
    ("", False),
]


@pytest.mark.parametrize(("url", "is_there"), FETCH)
def test_a_fetch_is_matched_by_its_host_alone(url: str, is_there: bool) -> None:
    request = Request("web_fetch", "web_fetch", True, subject=url)
    assert allowed(request, "web_fetch(domain:*.python.org)") is is_there
    if not is_there and not url.isascii():
        assert judge(request, "bypass", "deny: web_fetch(domain:x)").decision == "ask"


def test_an_mcp_tool_is_matched_by_name() -> None:
    request = Request("github__delete_repo", "mcp", False, subject="github__delete_repo")
    assert denied(request, "mcp(github__delete_*)")
    assert denied(request, "github__delete_repo")
    assert not denied(request, "mcp(github__get_*)")
    assert judge(request, "auto").decision == "ask"
    assert judge(request, "plan").decision == "deny"
    assert judge(request, "bypass").decision == "allow"


@pytest.mark.parametrize(
    ("glob", "pattern", "meet"),
    [
        ("*.py", ".env*", False),
        (".e*", ".env*", True),
        ("*.py", "*.txt", False),
        ("a*", "*b", True),
        ("?", "ab", False),
        ("[ab]c", "ac", True),
        ("*", "x", True),
        ("a", "a*b", False),
    ],
)
def test_two_patterns_meet_if_a_name_fits_both(glob: str, pattern: str, meet: bool) -> None:
    assert may_meet(glob, pattern) is meet


FILES = [  # family, path, then the decisions in ask, accept-edits, plan, auto and bypass
    ("read", "src/x", "allow allow allow allow allow"),
    ("read", "/w/lib/x", "allow allow allow allow allow"),
    ("read", "/etc/hosts", "ask ask ask ask allow"),
    ("read", "away/hosts", "ask ask ask ask allow"),
    ("read", "../x", "ask ask ask ask allow"),
    ("read", "~/x", "ask ask ask ask allow"),
    ("read", "x\0", "ask ask ask ask allow"),
    ("read", "x/" * 5000, "ask ask ask ask allow"),
    ("edit", "src/x", "ask allow deny allow allow"),
    ("edit", "/etc/hosts", "ask ask deny ask allow"),
    ("edit", "away/hosts", "ask ask deny ask allow"),
    ("edit", ".git/hooks/x", "ask ask deny ask ask"),
    ("edit", "src/.git", "ask ask deny ask ask"),
    ("edit", "hooks/x", "ask ask deny ask ask"),
    ("edit", "sub/HEAD", "ask ask deny ask ask"),
    ("edit", ".sidecar/config.toml", "ask ask deny ask ask"),
    ("edit", "dotfiles/bashrc", "ask ask deny ask ask"),
    ("edit", "~/.ssh/config", "ask ask deny ask ask"),
    ("edit", str(STATE / "sessions/x"), "ask ask deny ask ask"),
]


@pytest.mark.parametrize(("family", "path", "decisions"), FILES)
def test_file_tools_follow_the_mode_inside_the_roots(
    family: str, path: str, decisions: str
) -> None:
    request = Request("tool", family, family == "read", paths=(path,))
    modes = ("ask", "accept-edits", "plan", "auto", "bypass")
    assert " ".join(judge(request, mode).decision for mode in modes) == decisions


def test_a_tool_without_paths_means_the_root_and_the_strictest_path_decides() -> None:
    assert judge(read()).decision == "allow"
    assert judge(read("x", "/etc/hosts")).decision == "ask"
    assert judge(read("x", "away/a", "away/b")).outside == (Path("/etc/a"), Path("/etc/b"))
    assert judge(read("x")).outside == ()


def test_layers_add_up_and_one_deny_wins() -> None:
    system, user = layer("allow: bash(rm *)", "system"), layer("deny: bash(rm -rf *)", "user")
    verdict = decide(bash("rm -rf x"), policy("ask", system, user), None, realpath)
    assert verdict.decision == "deny"
    assert verdict.reason == "The rule bash(rm -rf *) (user) says deny: rm -rf x"
    assert decide(bash("rm x"), policy("ask", system, user), None, realpath).decision == "allow"


def test_a_remembered_reject_denies_unless_a_rule_asks() -> None:
    def verdict(rules: str) -> Verdict:
        held = policy("bypass", layer(rules), rejected="bash(git push *)")
        return decide(bash("git push"), held, None, realpath)

    assert verdict("allow: bash(git *)").decision == "deny"
    assert verdict("ask: bash(git push *)").decision == "ask"


@pytest.mark.parametrize(
    ("request_", "proposals"),
    [
        (bash("git push -f origin main"), ["bash(git push *)"]),
        (bash("npm run test -- x && npm ci"), ["bash(npm run test *)", "bash(npm ci *)"]),
        (bash("python -m pytest -q"), ["bash(python -m pytest *)"]),
        (bash("pytest -q $X | tail"), ["bash(pytest *)"]),
        (bash("timeout 9 uv run pytest"), ["bash(uv run pytest *)"]),
        (bash("uv run python x.py"), ["bash(uv run python x.py)"]),
        (bash("rm -rf 'a b' c*d.txt".replace("c*d", "'c*d'")), ["bash(rm -rf 'a b' c[*]d.txt)"]),
        (bash("git -C src push"), ["bash(git -C src push)"]),
        (bash("cat /etc/hosts"), ["bash(cat /etc/hosts)"]),
        (bash("ls /etc"), ["bash(ls *)"]),
        (bash("bash -c 'npm ci'"), ["bash(npm ci *)"]),
        (bash("make > src/log"), ["bash(make)", "edit(src/**)"]),
        (edit("src/a/x.py"), ["edit(src/a/**)"]),
        (edit("x.py"), ["edit(x.py)"]),
        (read("/etc/hosts"), ["read(/etc/hosts)"]),
        (Request("s__t", "mcp", False, subject="s__t"), ["mcp(s__t)"]),
        (Request("f", "web_fetch", True, subject="https://x.org/y"), ["web_fetch(domain:x.org)"]),
    ],
)
def test_the_rules_offered_are_narrow(request_: Request, proposals: list[str]) -> None:
    assert list(judge(request_).proposals) == proposals


@pytest.mark.parametrize(
    "command",
    ["$X ls", "rm $X", "cat $X", "PATH=. make", "ls() { rm x; }; ls", "ls (", "ls > .git/hooks/x",
     "rm x; ls > ~/.bashrc", "ls > $X", "a; b; c; d; e; f", 'rm -rf "$X/"', "rm " + "x" * 300],
)  # fmt: skip
def test_what_is_protected_unclear_or_too_much_is_never_remembered(command: str) -> None:
    verdict = judge(bash(command))
    assert (verdict.decision, verdict.proposals) == ("ask", ())


def test_nothing_is_offered_that_an_ask_rule_would_overrule() -> None:
    assert judge(bash("git push"), rules="ask: bash(git push *)").proposals == ()
    assert judge(bash("ls")).proposals == ()
