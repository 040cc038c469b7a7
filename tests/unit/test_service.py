"""The files that `sidecarctl daemon install` writes, as the programs that read them see them."""

from __future__ import annotations

import configparser
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from client import service
from sidecar import cgroups
from sidecar.protocol.errors import SidecarError

COMMAND = ["/opt/my python/bin/python", "-P", "-m", "sidecar"]
STOP = ["sidecarctl", "daemon", "stop"]


def parsed(text: str) -> configparser.ConfigParser:
    ini = configparser.ConfigParser(interpolation=None, strict=True)
    ini.optionxform = str  # type: ignore[assignment,method-assign]
    ini.read_string(text)
    return ini


def environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_RUNTIME_DIR": "/run/user/7"}


def test_the_unit_lets_sessions_outlive_the_daemon_and_the_daemon_come_back() -> None:
    unit = parsed(service.unit(COMMAND, {}))["Service"]
    assert (unit["Type"], unit["KillMode"], unit["Delegate"], unit["Restart"]) == (
        "notify",
        "process",
        "yes",
        "always",
    )
    assert unit["DelegateSubgroup"] == cgroups.LEAF
    assert unit["ExecStart"] == '"/opt/my python/bin/python" "-P" "-m" "sidecar"'
    assert unit["ExecReload"] == "kill -HUP $MAINPID"


def test_a_unit_for_other_places_names_them_and_no_key() -> None:
    env = {"SIDECAR_HOME": '/a "b" 100%', "ANTHROPIC_API_KEY": "secret", "HOME": "/h"}
    text = service.unit(COMMAND, env)
    assert 'Environment="SIDECAR_HOME=/a \\"b\\" 100%%"\n' in text
    assert "secret" not in text


def test_the_socket_is_where_clients_look_and_nobody_elses(tmp_path: Path) -> None:
    files = service.systemd(COMMAND, STOP, environ(tmp_path)).files
    text = files[tmp_path / ".config/systemd/user/sidecar.socket"]
    assert dict(parsed(text)["Socket"]) == {
        "ListenStream": "/run/user/7/sidecar/sidecar.sock",
        "SocketMode": "0600",
        "DirectoryMode": "0700",
        "Backlog": "128",
        "RemoveOnStop": "yes",
    }


def test_the_plist_lets_sessions_outlive_the_daemon_and_the_daemon_come_back(
    tmp_path: Path,
) -> None:
    env = {**environ(tmp_path), "SIDECAR_HOME": "/a&b"}
    made = service.launchd(COMMAND, STOP, env)
    [(path, text)] = made.files.items()
    agent = plistlib.loads(text.encode())
    assert path == tmp_path / f"Library/LaunchAgents/{agent['Label']}.plist"
    assert agent["ProgramArguments"] == COMMAND
    assert agent["AbandonProcessGroup"] is agent["KeepAlive"] is agent["RunAtLoad"] is True
    assert agent["EnvironmentVariables"] == {"SIDECAR_HOME": "/a&b"}
    assert agent["StandardErrorPath"] == "/a&b/state/daemon.log"
    assert service.MARK in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_nothing_to_mend(tmp_path: Path) -> None:
    env = {**environ(tmp_path), "SIDECAR_HOME": str(tmp_path / "a b 100%")}
    made = service.systemd([sys.executable, *COMMAND[1:]], STOP, env)
    for path, text in made.files.items():
        (tmp_path / path.name).write_text(text)
    units = [str(tmp_path / path.name) for path in made.files]
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--man=no", *units],
        env={"PATH": "/usr/bin:/bin", **environ(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    told = [line for line in done.stderr.splitlines() if "'DelegateSubgroup'" not in line]
    assert (done.returncode, told) == (0, []), "what systemd before 254 does not know, it ignores"


def made(path: Path, *, probe: str = "true", start: str = "true", stop: str = "true"):
    return service.Service({path: f"# {service.MARK}\n"}, [probe], [[start]], [[stop]], [["true"]])


def test_a_manager_that_answers_is_given_the_commands(tmp_path: Path) -> None:
    path, said = tmp_path / "new" / "unit", list[str]()
    service.install(made(path), said.append)
    assert said == [f"wrote {path}", "$ true"]
    service.install(made(path), said.append)
    assert said[2:] == ["$ true", f"removed {path}", "$ true", f"wrote {path}", "$ true"]
    service.uninstall(made(path), said.append)
    assert not path.exists()


def test_a_service_that_does_not_start_is_an_error_and_one_that_does_not_stop_is_not(
    tmp_path: Path,
) -> None:
    path, said = tmp_path / "unit", list[str]()
    with pytest.raises(SidecarError, match="false failed"):
        service.install(made(path, start="false"), said.append)
    service.uninstall(made(path, stop="false"), said.append)
    assert said[-3:] == ["false failed: was it not running?", f"removed {path}", "$ true"]


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    path.write_text("[Service]\n")
    for act in (service.install, service.uninstall):
        with pytest.raises(SidecarError, match="not ours"):
            act(made(path), print)
    assert path.read_text() == "[Service]\n"
