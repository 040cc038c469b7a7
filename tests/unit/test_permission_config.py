"""What settings may say of permissions, sandbox and tools, and how they are told otherwise."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sidecar import permission_config
from sidecar.config import load
from sidecar.permission_config import Permissions, Sandbox, read_permissions, read_sandbox
from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.hooks import Hook
from sidecar.protocol.policy_file import Rules
from sidecar.protocol.rules import Rule
from sidecar.tools_config import read_tools

HOOK = '[[hooks]]\nevent = "Stop"\ncommand = ["true"]\n'


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the system's file would be."""
    path = tmp_path / "system.toml"
    monkeypatch.setattr(permission_config, "SYSTEM_FILE", path)
    return path


def permissions(text: str) -> Permissions:
    return read_permissions(tomllib.loads(text), text)


def sandbox(text: str) -> Sandbox:
    return read_sandbox(tomllib.loads(text))


def test_without_settings_everything_is_asked_and_nobody_there_means_no() -> None:
    assert permissions("") == Permissions("ask", "deny", bounds.HEADLESS_AFTER_S, ())
    assert sandbox("") == Sandbox("none", require=False, network=False)


def test_all_settings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    read = permissions(
        '[permissions]\nmode = "plan"\nheadless = "fail"\nheadless_after_s = 0\n'
        'additional_dirs = ["~/notes", "/srv"]\ndeny = ["read(**/.env*)"]\n'
        'ask = ["bash(git push *)"]\nallow = ["edit"]\n' + HOOK
    )
    rules = Rules(
        "user",
        (Rule("read", "**/.env*"),),
        (Rule("bash", "git push *"),),
        (Rule("edit"),),
    )
    assert read == Permissions(
        *("plan", "fail", 0, ("/home/u/notes", "/srv"), (Rules("system"), rules)),
        (Hook("Stop", ("true",), source="user"),),
    )
    assert sandbox('[sandbox]\nlevel = "jail"\nrequire = true\nnetwork = true') == Sandbox(
        "jail", require=True, network=True
    )


def test_the_systems_rules_and_hooks_come_before_the_users(system: Path) -> None:
    system.write_text('[permissions]\ndeny = ["bash(sudo *)"]\n' + HOOK)
    read = permissions('[permissions]\nallow = ["bash"]\n' + HOOK)
    assert [layer.source for layer in read.layers] == ["system", "user"]
    assert read.layers[0].deny == (Rule("bash", "sudo *"),)
    assert [hook.source for hook in read.hooks] == ["system", "user"]


@pytest.mark.parametrize(
    "text",
    [
        '[permissions]\ndeny = ["bash("]',
        '[permissions]\nmode = "bypass"',
        '[permission]\ndeny = ["bash"]',
        "deny = [",
        '[[hooks]]\nevent = "Never"\ncommand = ["true"]',
    ],
)
def test_a_system_file_that_makes_no_sense_is_named(system: Path, text: str) -> None:
    system.write_text(text)
    with pytest.raises(ValueError, match=str(system)):
        permissions("")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("permissions = 1", "permissions is a table"),
        ('[permissions]\nmode = "yolo"', "permissions.mode is one of ask, accept-edits, plan"),
        ('[permissions]\nheadless = "allow"', "permissions.headless is one of deny, fail"),
        ("[permissions]\nheadless_after_s = -1", "headless_after_s is a number of seconds, not -1"),
        ("[permissions]\nheadless_after_s = inf", "a number of seconds, not inf"),
        ("[permissions]\nheadless_after_s = nan", "a number of seconds, not nan"),
        ("[permissions]\nheadless_after_s = true", "a number of seconds, not True"),
        ("[permissions]\nheadless_after_s = '60'", "a number of seconds, not '60'"),
        ("[permissions]\nadditional_dirs = ['notes']", "are full paths, not 'notes'"),
        ("[permissions]\nadditional_dirs = '/srv'\ndeny = 'edit'", "permissions.deny is a list"),
        ("[permissions]\nadditional_dirs = [1]", "are full paths, not 1"),
        ("[permissions]\nadditional_dirs = ['~nobody-here/x']", "are full paths, not '~nobody"),
        ('[permissions]\nadditional_dirs = ["/a\\u0000b"]', "are full paths, not"),
        ("[permissions]\ndenny = ['edit']", "permissions has no 'denny' here, only additional_d"),
        ("[permissions]\nask = [1]", "^permissions.ask: a rule is a text, not 1"),
        ("hooks = 1", "hooks are tables"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        permissions(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sandbox = 1", "sandbox is a table"),
        ('[sandbox]\nlevel = "box"', "sandbox.level is one of none, guard, jail"),
        ("[sandbox]\nrequire = 1", "sandbox.require is true or false"),
        ("[sandbox]\nnetwork = 'no'", "sandbox.network is true or false"),
        ("[sandbox]\nlevl = 'jail'", "sandbox has no 'levl', only level, require, network"),
    ],
)
def test_a_sandbox_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        sandbox(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[permissions]\ndeny = ["bash("]', "line 2: "),
        ("[permissions]\ndeny = [\n  'edit',\n  'bash(',\n]", "line 4: "),
        ('# bash( is none\n[permissions]\nallow = ["bash(ls)"]\ndeny = ["bash("]', "line 4: "),
        ('[permissions]\ndeny = ["\\u0062ash("]', ""),
    ],
)
def test_a_rule_that_is_none_is_told_with_its_line(text: str, line: str) -> None:
    with pytest.raises(ValueError, match="is no rule") as raised:
        permissions(text)
    assert str(raised.value).startswith(f"{line}permissions.deny: 'bash(' is no rule")


def test_rules_stay_the_same_on_their_way_to_a_worker() -> None:
    rules = Rules("user", (Rule("*"),), (Rule("bash", "git push *"),), (Rule("read", "~/x"),))
    assert Rules.from_wire(rules.to_wire()) == rules


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "[permissions]\ndeny = ['bash(']"])
def test_a_file_that_cannot_be_understood_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SidecarError) as raised:
        load(path)
    assert raised.value.message.startswith(f"{path}: ")
    assert raised.value.hint == "correct the file"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tools = 1", "a table"),
        ("[tools]\nterminal = true", "nothing but client_terminal"),
        ('[tools]\nclient_terminal = "yes"', "true or false"),
    ],
)
def test_tools_that_make_no_sense_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_tools(tomllib.loads(text))
