"""Where things are (design §3), and the rules a directory must meet before we use it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sidecar.protocol.errors import PlaceError

SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""Longest path `bind` takes (sun_path less its NUL)."""
_LONGEST_NAME = "/s/0123456789ab.model"


@dataclass(frozen=True)
class Places:
    """The directories and files of one user's Sidecar."""

    runtime: Path
    state: Path
    config: Path

    @property
    def control_socket(self) -> Path:
        return self.runtime / "sidecar.sock"

    @property
    def lock(self) -> Path:
        return self.runtime / "daemon.lock"

    @property
    def daemon_log(self) -> Path:
        return self.state / "daemon.log"

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def set_aside(self) -> Path:
        """Session directories whose record nobody understands."""
        return self.state / "set-aside"

    def session(self, session_id: str) -> SessionPlaces:
        return SessionPlaces(self.sessions / session_id, self.runtime / "s", session_id)


@dataclass(frozen=True)
class SessionPlaces:
    """The files and sockets of one session."""

    directory: Path
    socket_dir: Path
    session_id: str

    def _socket(self, suffix: str) -> Path:
        return self.socket_dir / f"{short_id(self.session_id)}.{suffix}"

    @property
    def endpoint(self) -> Path:
        """The worker's HTTP endpoint."""
        return self._socket("sock")

    @property
    def control(self) -> Path:
        """Where the shim answers the daemon."""
        return self._socket("ctl")

    @property
    def model(self) -> Path:
        """Where the embedded demo model listens."""
        return self._socket("model")

    def remove(self) -> None:
        """With all that is in it. Raises OSError."""
        from shutil import rmtree  # here, for it imports three compressors

        rmtree(self.directory)

    @property
    def record(self) -> Path:
        return self.directory / "record.json"

    @property
    def transcript(self) -> Path:
        return self.directory / "transcript.jsonl"

    @property
    def ring(self) -> Path:
        return self.directory / "ring"

    @property
    def worker_log(self) -> Path:
        return self.directory / "worker.log"

    @property
    def exit(self) -> Path:
        return self.directory / "exit.json"

    @property
    def spill(self) -> Path:
        return self.directory / "spill"

    def unlink_sockets(self) -> None:
        """Only once nothing of the session lives."""
        for path in (self.endpoint, self.control, self.model):
            path.unlink(missing_ok=True)


def short_id(session_id: str) -> str:
    """The first twelve hex digits: short enough for a socket name, unique enough for a user."""
    return session_id.replace("-", "")[:12]


def places(environ: Mapping[str, str]) -> Places:
    """The places that `environ` asks for. Creates nothing. Raises `PlaceError`.

    A runtime directory whose socket paths `bind` would refuse is replaced by a short private
    one under the user's state directory, the same for every process with this environment.
    """
    home = Path(environ.get("HOME") or Path.home())
    local_state = home / ".local/state"
    if chosen := environ.get("SIDECAR_HOME"):
        root = Path(chosen)
        if not root.is_absolute():
            raise PlaceError(
                f"SIDECAR_HOME must be an absolute path, not {chosen!r}", "give the full path"
            )
        runtime, state, config = root / "run", root / "state", root / "config.toml"
    else:
        xdg_runtime = environ.get("XDG_RUNTIME_DIR")
        state = Path(environ.get("XDG_STATE_HOME") or local_state) / "sidecar"
        runtime = Path(xdg_runtime) / "sidecar" if xdg_runtime else state / "run"
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "sidecar/config.toml"
    return Places(_bindable(runtime, local_state / "sidecar"), state, config)


def _bindable(runtime: Path, fallback_root: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(runtime)).hexdigest()[:8]
    for candidate in (runtime, fallback_root / f"r-{digest}"):
        if len(os.fsencode(candidate)) + len(_LONGEST_NAME) <= SOCKET_PATH_BYTES:
            return candidate
    raise PlaceError(
        f"{runtime} is too long: socket paths end at {SOCKET_PATH_BYTES} bytes",
        "set SIDECAR_HOME or XDG_RUNTIME_DIR to a shorter directory",
    )


def ensure_private_dir(path: Path) -> None:
    """Make `path` (mode 0700) or prove it ours alone. Raises `PlaceError`.

    A directory planted by someone else, or a link in its place, would hand them our sockets.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceError(f"{path} is not a directory", "remove it, or choose another SIDECAR_HOME")
    if found.st_uid != os.geteuid():
        raise PlaceError(f"{path} belongs to uid {found.st_uid}", "choose another SIDECAR_HOME")
    if found.st_mode & 0o077:
        raise PlaceError(f"{path} is open to other users", f"run: chmod 700 {path}")
