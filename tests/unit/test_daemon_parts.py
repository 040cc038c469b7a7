"""The daemon's pure parts: states, verdicts, framing, paths, environment, the method table."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sidecar import environment
from sidecar.adopt import Verdict, judge
from sidecar.config import Config, load
from sidecar.protocol.errors import CODES, PlaceError, SidecarError
from sidecar.protocol.framing import LineSplitter, LineTooLong, encode
from sidecar.protocol.methods import METHODS, STATES, Method
from sidecar.protocol.paths import ensure_private_dir, places, short_id
from sidecar.states import ENDED, LIVE, NEXT, IllegalTransition, advance

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(("state", "reported"), list(itertools.product(STATES, STATES)))
def test_every_pair_of_states_is_in_the_table_or_raises(state: str, reported: str) -> None:
    if reported == state or reported in NEXT[state]:
        assert advance(state, reported) == reported
    else:
        with pytest.raises(IllegalTransition):
            advance(state, reported)


def test_the_states_of_the_table_are_those_of_the_protocol() -> None:
    assert set(NEXT) == set(STATES) == LIVE | ENDED
    assert all(after <= set(STATES) for after in NEXT.values())


@pytest.mark.parametrize(
    ("wanted", "spawned", "alive", "exited", "verdict"),
    [
        ("up", True, True, False, Verdict.ADOPT),
        ("down", True, True, False, Verdict.FINISH_STOP),
        ("up", True, False, False, Verdict.LOST),
        ("down", True, False, False, Verdict.LOST),
        ("up", True, False, True, Verdict.ENDED),
        ("down", True, True, True, Verdict.ENDED),
        ("up", False, False, False, Verdict.FORGET),
        ("down", False, False, False, Verdict.FORGET),
    ],
)
def test_what_is_found_on_disk_is_judged(
    wanted: str, spawned: bool, alive: bool, exited: bool, verdict: Verdict
) -> None:
    assert judge(wanted=wanted, spawned=spawned, alive=alive, exited=exited) is verdict


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_survive_any_chunking(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter, got = LineSplitter(100), list[bytes]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got == lines


@pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x" * 6, b"x" * 6], [b"a\n" + b"x" * 11]])
def test_a_line_over_the_limit_is_refused_before_it_is_whole(chunks: list[bytes]) -> None:
    splitter = LineSplitter(10)
    with pytest.raises(LineTooLong):
        for chunk in chunks:
            splitter.feed(chunk)


def test_a_line_holds_no_other_line_end_and_carries_lone_surrogates() -> None:
    line = encode({"text": "a\nb\u2028c\ud800"})
    assert line.count(b"\n") == 1
    assert line.isascii()


def test_an_error_crosses_the_wire_unchanged() -> None:
    error = SidecarError("name_taken", "it is taken", "choose another", session_id="x")
    back = SidecarError.from_wire(error.to_wire())
    assert (back.code, back.message, back.hint, back.data) == (
        error.code,
        error.message,
        error.hint,
        error.data,
    )
    assert len(set(CODES.values())) == len(CODES)


def test_places_follow_the_environment() -> None:
    xdg = {
        "HOME": "/h",
        "XDG_RUNTIME_DIR": "/run/user/7",
        "XDG_STATE_HOME": "/s",
        "XDG_CONFIG_HOME": "/c",
    }
    assert places({"HOME": "/h"}).runtime == Path("/h/.local/state/sidecar/run")
    assert places(xdg).control_socket == Path("/run/user/7/sidecar/sidecar.sock")
    assert places(xdg).sessions == Path("/s/sidecar/sessions")
    assert places(xdg).config == Path("/c/sidecar/config.toml")
    own = places({**xdg, "SIDECAR_HOME": "/own"})
    assert (own.control_socket, own.state) == (Path("/own/run/sidecar.sock"), Path("/own/state"))
    assert own.session("12345678-9abc-4def-8").endpoint == Path("/own/run/s/123456789abc.sock")
    assert short_id("12345678-9abc-4def-8123-456789abcdef") == "123456789abc"


def test_a_runtime_directory_too_long_for_sockets_gets_a_short_private_stand_in() -> None:
    long = {"HOME": "/h", "SIDECAR_HOME": "/" + "x" * 120}
    stand_in = places(long).runtime
    assert str(stand_in).startswith("/h/.local/state/sidecar/r-")
    assert places(long).runtime == stand_in
    assert places({**long, "SIDECAR_HOME": "/" + "y" * 120}).runtime != stand_in
    with pytest.raises(PlaceError):
        places({"HOME": "/" + "h" * 120, "SIDECAR_HOME": "/" + "x" * 120})
    with pytest.raises(PlaceError):
        places({"HOME": "/h", "SIDECAR_HOME": "relative"})


def test_a_directory_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    ensure_private_dir(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "file").touch()
    for bad in ("open", "link", "file"):
        with pytest.raises(PlaceError):
            ensure_private_dir(tmp_path / bad)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.raises(PlaceError):
        ensure_private_dir(tmp_path / "theirs")


DAEMON_ENV = {
    "PATH": "/bin",
    "HOME": "/h",
    "LC_ALL": "C",
    "ANTHROPIC_API_KEY": "of-the-daemon",
    "GITHUB_TOKEN": "secret",
}


def test_a_session_without_env_gets_the_daemons_provider_and_an_allow_list() -> None:
    provider, tools = environment.split({}, DAEMON_ENV, "sid")
    assert provider == {"ANTHROPIC_API_KEY": "of-the-daemon"}
    assert tools == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "SIDECAR_SESSION": "sid"}


def test_a_session_with_env_never_inherits_the_daemons_key() -> None:
    asked = {"MODEL_ID": "m", "GITHUB_TOKEN": "mine", "PATH": "/my/bin"}
    provider, tools = environment.split(asked, DAEMON_ENV, "sid")
    assert provider == {"MODEL_ID": "m"}
    assert (tools["GITHUB_TOKEN"], tools["PATH"]) == ("mine", "/my/bin")
    assert not any("ANTHROPIC" in name for name in tools)


@pytest.mark.parametrize(
    "text",
    [
        *("spawn = 'thread'", "max_sessions = 0", "max_sessions = true", "nope = 1", "= ="),
        *("ptc_profile = 'seeds'", "ptc_profile = true", "ptc_profile = ['seed']"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SidecarError):
        load(tmp_path / "config.toml")
    assert load(tmp_path / "none.toml") == Config()


@pytest.mark.parametrize("method", list(METHODS.values()), ids=lambda method: method.name)
def test_each_methods_schema_is_one_and_its_defaults_pass_it(method: Method) -> None:
    Draft202012Validator.check_schema(method.schema)
    given = {name: "/tmp" if name == "cwd" else "abcd" for name in method.required}
    Draft202012Validator(method.schema).validate(method.with_defaults(given))


def test_windows_is_refused_with_a_clear_word() -> None:
    code = "import asyncio, sys; sys.platform = 'win32'; import client.cli"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "Linux and macOS" in refused.stderr


def test_the_readme_lists_exactly_the_methods_there_are() -> None:
    listed = set(re.findall(r"^\| `((?:session|sidecar)\.[a-z]+)`", README.read_text(), re.M))
    assert listed == set(METHODS)
