"""Level jail: the command line of bubblewrap. Nothing here starts a command of the session."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from session_worker.sandbox import seccomp
from session_worker.sandbox.git import file_type, pinned

PROBE_S = 10.0
"""A bubblewrap that works ends in 5 ms; one on a cold disk may take seconds."""

SECRETS = (  # below the user's home
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/rclone",
    ".config/google-chrome",
    ".config/chromium",
    ".mozilla",
    ".password-store",
    ".local/share/keyrings",
    ".docker/config.json",
    ".git-credentials",
    ".config/git/credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".cargo/credentials.toml",
    ".terraform.d/credentials.tfrc.json",
)
DOORS = (  # sockets through which others would do what a command may not, as root above all
    "/run/user/{uid}",
    "/run/dbus",
    "/run/systemd/private",
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/libvirt",
    "/run/snapd.socket",
)

_ALWAYS = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    # root would keep its capabilities, and with them unmount what hides things (seen)
    "--cap-drop ALL",
    "--ro-bind / /",
    "--dev /dev",
    "--proc /proc",
)
"""Not `--new-session`: `process.start` has made one, without a terminal, and what is inside must be
in the group that is waited for and killed."""
_BASE = [word for option in _ALWAYS for word in option.split()]

_Mount = tuple[Path, list[str]]
"""Where, and the options that put something there."""


@dataclass(frozen=True)
class Jail:
    """One session's. Paths are canonical. Nothing is seen of `hidden` but what of `roots` lies in
    it; what is there to hide is looked up for every command."""

    bwrap: str
    roots: Sequence[Path]
    repositories: Sequence[Path]
    spill: Path
    scratch: Path
    hidden: Sequence[Path]
    network: bool

    def command(self, cwd: Path, filter_fd: int) -> list[str]:
        """What a command line is put behind."""
        # what is deeper comes later, or it would be covered; what is as deep stays in order
        mounts = sorted(self._mounts(), key=lambda mount: len(mount[0].parts))
        placed = [word for _, options in mounts for word in options]
        network = [] if self.network else ["--unshare-net"]
        inside = ["--chdir", str(cwd), "--seccomp", str(filter_fd), "--"]
        return [self.bwrap, *_BASE, *network, *placed, *inside]

    def _mounts(self) -> Iterator[_Mount]:
        yield _bound("--bind", self.scratch, Path("/tmp"))
        for path in self.hidden:
            found = file_type(path)
            if found == stat.S_IFDIR:
                yield path, ["--tmpfs", str(path)]
            elif found:
                yield _bound("--dev-bind", Path(os.devnull), path)
        yield _bound("--ro-bind", self.spill)
        for root in (*self.roots, *self.repositories):
            yield _bound("--bind", root)
        for git in (*(root / ".git" for root in self.roots), *self.repositories):
            for path, writable in pinned(git):
                yield _bound("--bind" if writable else "--ro-bind", path)


def _bound(option: str, source: Path, place: Path | None = None) -> _Mount:
    place = place or source
    return place, [option, str(source), str(place)]


def secrets(home: Path) -> list[Path]:
    """Canonical paths, whether or not there is something."""
    doors = (Path(door.format(uid=os.getuid())) for door in DOORS)
    return [path.resolve() for path in (*(home / name for name in SECRETS), *doors)]


def call_filter() -> bytes:
    """IP is not refused: without network a jail has one of its own, with nobody else in it."""
    return seccomp.program(seccomp.refusals(seccomp.NETWORK), platform.machine())


def find() -> str | None:
    return shutil.which("bwrap")


def problem() -> str | None:
    """Why this system cannot do it; found by doing it: containers and AppArmor forbid parts."""
    program = find()
    if program is None:
        return "bwrap (bubblewrap) is not installed"
    if platform.machine() not in seccomp.ARCHITECTURES:
        return f"no system call filter for {platform.machine()}"
    with seccomp.as_pipe(call_filter()) as fd:
        argv = [program, *_BASE, "--unshare-net", "--tmpfs", "/tmp", "--seccomp", str(fd), "true"]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[fd], timeout=PROBE_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bwrap: {error}"
    if done.returncode != 0:
        return done.stderr.decode(errors="replace").strip() or f"bwrap: exit {done.returncode}"
    return None
