"""The sandbox's decisions: which calls are refused, what a jail shows, what can be had at all."""

from __future__ import annotations

import errno
import platform
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from session_worker.sandbox import (
    Launcher,
    Level,
    Obtained,
    SandboxUnavailable,
    SandboxWish,
    bwrap,
    obtain,
    seccomp,
)
from session_worker.sandbox.bwrap import Jail
from session_worker.sandbox.git import pinned, repository_of_worktree
from session_worker.sandbox.level import outermost

THREAD = 0x1234
ALLOWED, KILLED = "allowed", "killed"


def verdict(code: bytes, architecture: int, number: int, arguments: Sequence[int]) -> str | int:
    """What the kernel's machine makes of a call: `ALLOWED`, `KILLED` or an errno."""
    words = [number, architecture, 0, 0]  # and the address that called
    for argument in arguments:
        words += [argument & 0xFFFFFFFF, argument >> 32]
    program = list(struct.iter_unpack("=HBBI", code))
    at = value = 0
    while True:
        operation, if_true, if_false, k = program[at]
        at += 1
        match operation:
            case seccomp._LOAD:
                value = words[k // 4]
            case seccomp._JUMP_EQUAL:
                at += if_true if value == k else if_false
            case seccomp._JUMP_AT_LEAST:
                at += if_true if value >= k else if_false
            case _:
                assert operation == seccomp._RETURN
                return {seccomp._ALLOW: ALLOWED, seccomp._KILL: KILLED}.get(k, k & 0xFFFF)


def guard_verdict(machine: str, call: str, *arguments: int) -> str | int:
    table = [*seccomp.refusals(seccomp.LOCAL), *seccomp.launcher_refusals(THREAD)]
    number = seccomp._CALLS[call][list(seccomp.ARCHITECTURES).index(machine)]
    code = seccomp.program(table, machine)
    return verdict(code, seccomp.ARCHITECTURES[machine], number, [*arguments, *[0] * 6][:6])


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("socket", (socket.AF_UNIX,), ALLOWED),
        ("socket", (socket.AF_INET,), errno.EPERM),
        ("socket", (socket.AF_UNIX | 1 << 32,), ALLOWED),  # the kernel looks at an int
        ("io_uring_setup", (1,), errno.EPERM),
        ("kill", (THREAD, 9), errno.EPERM),
        ("kill", (THREAD + 1, 9), ALLOWED),
        ("kill", (THREAD | 1 << 32, 9), errno.EPERM),
        ("tkill", (THREAD, 9), errno.EPERM),
        ("tgkill", (1, THREAD, 9), errno.EPERM),
        ("tgkill", (THREAD, 1, 9), ALLOWED),
        ("rt_sigqueueinfo", (THREAD, 9), errno.EPERM),
        ("rt_tgsigqueueinfo", (1, THREAD, 9), errno.EPERM),
        ("pidfd_send_signal", (3, 9), errno.ENOSYS),
        ("fcntl", (3, 8, THREAD), errno.EPERM),
        ("fcntl", (3, 8, 1), ALLOWED),
        ("fcntl", (3, 4, THREAD), ALLOWED),  # F_SETFL, whatever the flags are
        ("fcntl", (3, 15, 1), errno.EPERM),
        ("ioctl", (3, 0x8901), errno.EPERM),
        ("ioctl", (3, 0x8902), errno.EPERM),
        ("ioctl", (3, 0x5401), ALLOWED),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1, 7), errno.EPERM),
    ],
)
def test_a_guard_refuses_what_reaches_past_it(
    machine: str, call: str, arguments: tuple[int, ...], expected: str | int
) -> None:
    assert guard_verdict(machine, call, *arguments) == expected


def test_calls_of_another_architecture_end_the_process() -> None:
    code = seccomp.program(seccomp.refusals(seccomp.LOCAL), "x86_64")
    assert verdict(code, 0x40000003, 20, [0] * 6) == KILLED
    assert verdict(code, seccomp.ARCHITECTURES["x86_64"], 0x40000000 + 41, [2]) == errno.ENOSYS


def test_network_is_four_families_and_no_more() -> None:
    code = seccomp.program(seccomp.refusals(seccomp.NETWORK), "aarch64")
    allowed = [f for f in range(64) if verdict(code, 0xC00000B7, 198, [f] + [0] * 5) == ALLOWED]
    assert allowed == sorted(map(int, seccomp.NETWORK))


def jail(base: Path, *roots: Path, hidden: Sequence[Path] = ()) -> list[tuple[str, Path]]:
    """Option and place of every mount, in order."""
    one = Jail("bwrap", roots, [], base / "spill", base / "scratch", hidden, network=False)
    words = one.command(base, 3)
    options = ("--bind", "--ro-bind", "--dev-bind", "--tmpfs")
    steps = {option: 1 if option == "--tmpfs" else 2 for option in options}
    found = [(w, Path(words[n + steps[w]])) for n, w in enumerate(words) if w in options]
    return found[1:]  # the first is the root of all


def test_a_hidden_place_in_a_root_is_hidden_after_the_root_is_shown(tmp_path: Path) -> None:
    secret = tmp_path / "root" / ".ssh"
    secret.mkdir(parents=True)
    mounts = jail(tmp_path, tmp_path / "root", hidden=[secret])
    assert mounts.index(("--bind", tmp_path / "root")) < mounts.index(("--tmpfs", secret))


def test_a_root_in_a_hidden_place_is_shown_after_the_place_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "state" / "root").mkdir(parents=True)
    mounts = jail(tmp_path, tmp_path / "state" / "root", hidden=[tmp_path / "state"])
    hide, show = ("--tmpfs", tmp_path / "state"), ("--bind", tmp_path / "state" / "root")
    assert mounts.index(hide) < mounts.index(show)


def test_a_jail_hides_what_is_there_by_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    hidden = [tmp_path / name for name in ("dir", "file", "none")]
    mounts = jail(tmp_path, hidden=hidden)
    assert ("--tmpfs", tmp_path / "dir") in mounts
    assert ("--dev-bind", tmp_path / "file") in mounts
    assert not [place for _, place in mounts if place.name == "none"]


def test_a_link_for_a_git_hook_directory_is_not_followed(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (tmp_path / "elsewhere").mkdir()
    git.mkdir()
    (git / "hooks").symlink_to(tmp_path / "elsewhere")
    (git / "config").touch()
    assert list(pinned(git)) == [(git, True), (git / "config", False)]
    (tmp_path / "link").symlink_to(git)
    assert list(pinned(tmp_path / "link")) == []


def worktree(root: Path, repository: Path, names: Path) -> Path:
    """A linked worktree `root` whose entry in `repository` names `names`."""
    entry = repository / "worktrees" / "one"
    entry.mkdir(parents=True)
    (repository / "objects").mkdir()
    root.mkdir(exist_ok=True)
    (root / ".git").write_text(f"gitdir: {entry}\n")
    (entry / "gitdir").write_text(f"{names}/.git\n")
    return root


def test_the_repository_of_a_linked_worktree_is_found(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    root = worktree(tmp_path / "tree", repository, names=tmp_path / "tree")
    assert repository_of_worktree(root) == repository
    (root / ".git").write_text("gitdir: ../repository/worktrees/one")
    assert repository_of_worktree(root) == repository, "newer gits write relative paths"


def test_a_repository_made_up_inside_a_root_is_not_bound_by_itself(tmp_path: Path) -> None:
    """A command could put a link in its place, and the next jail would follow it."""
    root = tmp_path / "tree"
    worktree(root, root / "repository", names=root)
    launcher = Launcher(Obtained(Level.JAIL, detail={"bwrap": "bwrap"}), [root], tmp_path, [])
    assert launcher._jail
    assert (launcher._jail.roots, launcher._jail.repositories) == ([root], [])


def test_a_repository_that_does_not_name_the_worktree_is_not_its(tmp_path: Path) -> None:
    """Else a command that writes `.git` would open any repository to the next session."""
    other = worktree(tmp_path / "tree", tmp_path / "repository", names=tmp_path / "another")
    assert repository_of_worktree(other) is None


@pytest.mark.parametrize("content", ["", "gitdir: ", "gitdir: /", "\0", "elsewhere"])
def test_a_git_file_that_says_nothing_is_no_worktree(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_text(content)
    assert repository_of_worktree(tmp_path) is None
    assert repository_of_worktree(tmp_path / "missing") is None


def test_roots_inside_others_are_left_out_and_links_followed(tmp_path: Path) -> None:
    for name in ("a/b", "ab"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    roots = [tmp_path / name for name in ("ab", "link", "a", "a/b")]
    assert outermost(roots) == [tmp_path / "a", tmp_path / "ab"]


def test_no_sandbox_asked_for_is_none_got() -> None:
    got = obtain(SandboxWish(), [Path("/")], [Path("/")])
    assert (got.level, got.detail) == (Level.NONE, {"missing": {}})


def test_a_root_with_our_own_files_in_it_cannot_be_confined(tmp_path: Path) -> None:
    (tmp_path / "home" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    place = ([tmp_path / "link"], [tmp_path / "home" / "state"])
    got = obtain(SandboxWish(Level.JAIL), *place)
    assert got.level == Level.NONE
    assert set(got.detail["missing"]) == {Level.JAIL, Level.GUARD}
    with pytest.raises(SandboxUnavailable, match="is in it"):
        obtain(SandboxWish(Level.GUARD, require=True), *place)


def test_less_than_what_was_asked_for_comes_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bwrap, "find", lambda: None)
    got = obtain(SandboxWish(Level.JAIL), [], [])
    assert got.level != Level.JAIL
    assert got.detail["missing"][Level.JAIL]
    with pytest.raises(SandboxUnavailable) as refused:
        obtain(SandboxWish(Level.JAIL, require=True), [], [])
    assert (refused.value.level, refused.value.reason) == (
        Level.JAIL,
        got.detail["missing"][Level.JAIL],
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a sandbox")
@pytest.mark.parametrize("level", [Level.GUARD, Level.JAIL])
def test_a_machine_without_a_filter_is_said_to_have_none(
    monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    monkeypatch.setattr(bwrap, "find", lambda: "bwrap")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="no system call filter for riscv64"):
        obtain(SandboxWish(level, require=True), [], [])
