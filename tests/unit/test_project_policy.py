"""What a project may say of permissions, before and after somebody trusts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_worker.project.policy import FILE_BYTES, ProjectPolicy, project_policy
from sidecar.protocol.policy_file import Rules
from sidecar.protocol.rules import Rule

HOOK = "[[hooks]]\nevent = 'Stop'\ncommand = ['true']\n"
RULES = "[permissions]\ndeny = ['read(secret)']\nask = ['bash(make *)']\nallow = ['edit']\n"
ASKS = (Rule("*"),)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".sidecar").mkdir(parents=True)
    return root


def config(root: Path, text: str, name: str = "config") -> None:
    (root / f".sidecar/{name}.toml").write_text(text)


def test_a_project_that_says_nothing_changes_nothing(root: Path) -> None:
    assert project_policy(root, trusted=False) == ProjectPolicy()
    (root / ".sidecar").rmdir()
    assert project_policy(root, trusted=True) == ProjectPolicy()


def test_a_stranger_may_forbid_and_question_and_nothing_else(root: Path) -> None:
    config(root, RULES + HOOK)
    policy = project_policy(root, trusted=False)
    assert policy.layers == (
        Rules("project", deny=(Rule("read", "secret"),), ask=(Rule("bash", "make *"),)),
    )
    assert policy.hooks == ()
    (notice,) = policy.notices
    assert f"sidecarctl trust {root}" in notice


def test_a_trusted_project_is_heard_in_full(root: Path) -> None:
    config(root, RULES + HOOK)
    policy = project_policy(root, trusted=True)
    assert policy.layers[0].allow == (Rule("edit"),)
    assert [hook.source for hook in policy.hooks] == ["project"]
    assert policy.notices == ()


def test_trust_is_not_asked_for_where_it_would_change_nothing(root: Path) -> None:
    config(root, "[permissions]\ndeny = ['edit']")
    assert project_policy(root, trusted=False).notices == ()


def test_what_is_for_this_machine_alone_is_the_stronger(root: Path) -> None:
    config(root, "[permissions]\ndeny = ['edit']\n" + HOOK)
    config(root, "[permissions]\nallow = ['edit']\n" + HOOK, "config.local")
    policy = project_policy(root, trusted=True)
    assert [layer.source for layer in policy.layers] == ["project-local", "project"]
    assert [hook.source for hook in policy.hooks] == ["project-local", "project"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("deny = [", "Invalid"),
        ("[permissions]\ndeny = ['edit', 'bash(']", "line 2: permissions.deny: 'bash(' is no rule"),
        ("[permissions]\ndeny = 'edit'", "permissions.deny is a list"),
        ("[permissions]\ndenny = ['edit']", "permissions has no 'denny'"),
        ("[permissions]\nmode = 'bypass'", "permissions has no 'mode'"),
        ("[sandbox]\nlevel = 'none'", "a project cannot set 'sandbox'"),
        ("permissions = 1", "permissions is a table"),
        ("[[hooks]]\nevent = 'Never'", "hook 1: event is one of"),
        ("a = " + "[" * 5000, ""),
        ("#" * FILE_BYTES + "\n", "longer than 64KB"),
        ("[permissions]\ndeny = ['\0']", "not text"),
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
def test_a_file_that_makes_no_sense_has_everything_asked(
    root: Path, text: str, complaint: str, trusted: bool
) -> None:
    config(root, text)
    config(root, "[permissions]\ndeny = ['edit']", "config.local")
    policy = project_policy(root, trusted=trusted)
    assert policy.layers == (
        Rules("project-local", deny=(Rule("edit"),)),
        Rules("project, unreadable", ask=ASKS),
    )
    assert policy.hooks == ()
    (notice,) = policy.notices
    assert notice.startswith(f"{root}/.sidecar/config.toml: ")
    assert complaint in notice
    assert notice.endswith("everything is asked.")


def test_a_link_leads_nowhere_out_of_the_project(root: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text("[permissions]\nallow = ['bash']")
    (root / ".sidecar/config.toml").symlink_to(tmp_path / "theirs.toml")
    policy = project_policy(root, trusted=True)
    assert policy.layers == (Rules("project, unreadable", ask=ASKS),)
    assert "leads out of" in policy.notices[0]
    (root / ".sidecar/config.toml").unlink()
    (root / "ours.toml").write_text("[permissions]\nallow = ['bash']")
    (root / ".sidecar/config.toml").symlink_to("../ours.toml")
    assert project_policy(root, trusted=True).layers[0].allow == (Rule("bash"),)


def test_a_pipe_in_the_place_of_the_file_blocks_nobody(root: Path) -> None:
    os.mkfifo(root / ".sidecar/config.toml")
    assert project_policy(root, trusted=True) == ProjectPolicy()
