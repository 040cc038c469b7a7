"""Running the daemon for good: the files and commands of systemd and launchd.

`systemd` and `launchd` are pure; `install` and `uninstall` do what they say, and say what they do.
"""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sidecar.protocol import bounds
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.paths import places

MARK = "written by `sidecarctl daemon install`, which replaces it; `daemon uninstall` removes it"
LABEL = "sidecar-agents.sidecard"
_PLACE_VARIABLES = ("SIDECAR_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
_UNITS = ("sidecar.socket", "sidecar.service")

Command = Sequence[str]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Service:
    """What one service manager needs. `probe` succeeds where it can be talked to; `start` is for
    files just written, `stop` for files about to be removed, `forget` for when they are."""

    files: dict[Path, str]
    probe: Command
    start: Sequence[Command]
    stop: Sequence[Command]
    forget: Sequence[Command] = ()


def unit(command: Command, environ: Mapping[str, str]) -> str:
    """sidecar.service: `command` for the places of `environ`."""
    environment = [f"Environment={_quoted(f'{k}={v}')}" for k, v in _chosen(environ).items()]
    lines = "\n".join([f"ExecStart={' '.join(map(_quoted, command))}", *environment])
    return f"""\
# {MARK}
# Changes of your own: systemctl --user edit sidecar.service
# To keep it running while you are logged out: loginctl enable-linger

[Unit]
Description=Sidecar, supervisor of AI agent sessions
Requires=sidecar.socket
# A daemon that cannot start is tried again until it can, as when a bad config.toml is mended.
StartLimitIntervalSec=0

[Service]
Type=notify
{lines}
ExecReload=kill -HUP $MAINPID
# Sessions outlive the daemon: a stop or restart must end no other process of the unit.
KillMode=process
Delegate=yes
# Known since systemd 254; with an older one sessions get no control groups.
DelegateSubgroup=daemon
Restart=always
RestartSec=2

[Install]
WantedBy=default.target
"""


def socket_unit(control_socket: Path) -> str:
    """sidecar.socket: clients may connect before the daemon runs, and while it restarts."""
    return f"""\
# {MARK}

[Unit]
Description=Control socket of Sidecar

[Socket]
ListenStream={_escaped(str(control_socket))}
SocketMode=0600
DirectoryMode=0700
Backlog={bounds.CONTROL_BACKLOG}
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


def plist(command: Command, environ: Mapping[str, str], log: Path) -> str:
    """The launchd agent: `command` for the places of `environ`, its output in `log`."""
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "EnvironmentVariables": _chosen(environ),
        "RunAtLoad": True,
        "KeepAlive": True,
        "AbandonProcessGroup": True,  # sessions outlive the daemon
        "ProcessType": "Interactive",  # or launchd throttles the sessions, too
        "WorkingDirectory": "/",
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
        "Umask": 0o077,
    }
    head, document, rest = plistlib.dumps(agent, sort_keys=False).decode().partition("<!DOCTYPE")
    return f"{head}<!-- {MARK} -->\n{document}{rest}"


def systemd(command: Command, stop: Command, environ: Mapping[str, str]) -> Service:
    """For a user's systemd. `stop` stops a daemon that was started by other means."""
    config = environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config"
    units = Path(config) / "systemd/user"
    # what the manager itself will say, also where our caller's login does not
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    where = places({**environ, "XDG_RUNTIME_DIR": runtime})
    systemctl = ("systemctl", "--user")
    return Service(
        files={
            units / "sidecar.socket": socket_unit(where.control_socket),
            units / "sidecar.service": unit(command, environ),
        },
        probe=(*systemctl, "show", "--property=Version"),
        start=(stop, (*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", *_UNITS)),
        stop=((*systemctl, "disable", "--now", *_UNITS),),
        forget=((*systemctl, "daemon-reload"),),
    )


def launchd(command: Command, stop: Command, environ: Mapping[str, str]) -> Service:
    """For a user's launchd. `stop` stops a daemon that was started by other means."""
    path = _home(environ) / "Library/LaunchAgents" / f"{LABEL}.plist"
    domain = f"gui/{os.getuid()}"
    return Service(
        files={path: plist(command, environ, places(environ).daemon_log)},
        probe=("launchctl", "print", domain),
        start=(stop, ("launchctl", "bootstrap", domain, str(path))),
        stop=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
    )


def install(service: Service, say: Say) -> None:
    """Write the files, in the place of earlier ones of ours, and start the service, or say how.

    Raises `SidecarError`: `forbidden` for a file that is not ours, before anything is changed.
    """
    if _installed(service):
        uninstall(service, say)
    for path, text in service.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    if failed := _carry_out(service, service.start, say):
        raise SidecarError("start_failed", f"{failed} failed", "sidecarctl daemon uninstall")


def uninstall(service: Service, say: Say) -> None:
    """Stop the service and remove the files that `install` wrote. Raises `SidecarError`."""
    installed = _installed(service)
    if not installed:
        say("nothing is installed")
        return
    if failed := _carry_out(service, service.stop, say):
        say(f"{failed} failed: was it not running?")
    for path in installed:
        path.unlink()
        say(f"removed {path}")
    _carry_out(service, service.forget, say)


def _installed(service: Service) -> list[Path]:
    """The service's files that are there."""
    found = [path for path in service.files if path.exists()]
    for path in found:
        if MARK not in path.read_text(encoding="utf-8", errors="replace"):
            raise SidecarError(
                "forbidden", f"{path} is not ours: it lacks our mark", "move it away"
            )
    return found


def _carry_out(service: Service, commands: Sequence[Command], say: Say) -> str | None:
    """Run `commands`, or only show them where there is no manager. The one that failed."""
    works = _code(service.probe, subprocess.DEVNULL) == 0
    if commands and not works:
        say(f"{service.probe[0]} does not answer here; where it does, run:")
    for command in commands:
        say(f"$ {shlex.join(command)}")
        if works and _code(command) != 0:
            return shlex.join(command)
    return None


def _code(command: Command, output: int | None = None) -> int | None:
    """Its exit code; None if it cannot be run or does not end."""
    try:
        return subprocess.call(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=bounds.SERVICE_COMMAND_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _chosen(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide where things are, as the manager would not know them."""
    return {name: environ[name] for name in _PLACE_VARIABLES if environ.get(name)}


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """One word for systemd, whatever is in it."""
    return '"' + _escaped(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
