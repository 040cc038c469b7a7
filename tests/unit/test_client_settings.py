"""Which variables a session is created with, and from where."""

from pathlib import Path

import pytest

from client.errors import UsageError
from client.launch import daemon_env
from client.settings import find_env_file, session_env


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "settings"
    path.write_text(
        "# a comment\n"
        "ANTHROPIC_API_KEY=from-file\n"
        "MODEL_ID=\n"
        "GREETING='hello there'\n"
        "PRICE=${HOME}\n"
        "BARE\n"
    )
    return path


def test_a_pair_wins_over_the_environment_and_the_environment_over_the_file(env_file: Path) -> None:
    environ = {"ANTHROPIC_API_KEY": "from-shell", "PATH": "/bin"}
    assert session_env([], env_file, {})["ANTHROPIC_API_KEY"] == "from-file"
    assert session_env([], env_file, environ)["ANTHROPIC_API_KEY"] == "from-shell"
    pair = ["ANTHROPIC_API_KEY=from-pair"]
    assert session_env(pair, env_file, environ)["ANTHROPIC_API_KEY"] == "from-pair"


def test_empty_values_count_as_unset(env_file: Path) -> None:
    environ = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}
    env = session_env([], env_file, environ)
    assert env["ANTHROPIC_API_KEY"] == "from-file"
    assert env.keys() & {"ANTHROPIC_BASE_URL", "MODEL_ID", "BARE", "PATH"} == set()


def test_an_empty_pair_drops_what_the_others_say(env_file: Path) -> None:
    env = session_env(["ANTHROPIC_API_KEY="], env_file, {"ANTHROPIC_API_KEY": "from-shell"})
    assert "ANTHROPIC_API_KEY" not in env


def test_everything_in_the_file_goes_along_and_nothing_is_expanded(env_file: Path) -> None:
    env = session_env([], env_file, {"HOME": "/root"})
    assert env["GREETING"] == "hello there"
    assert env["PRICE"] == "${HOME}"


def test_of_our_environment_only_provider_variables_and_path_go_along() -> None:
    environ = {"MODEL_ID": "m", "PATH": "/bin", "SSH_AUTH_SOCK": "/run/agent", "AWS_SECRET": "s"}
    assert session_env([], None, environ) == {"MODEL_ID": "m", "PATH": "/bin"}


def test_a_pair_without_a_value_takes_ours() -> None:
    assert session_env(["TOKEN"], None, {"TOKEN": "secret"})["TOKEN"] == "secret"


@pytest.mark.parametrize("pair", ["NOT_SET_HERE", "=value", ""])
def test_a_pair_that_names_no_value_is_a_usage_error(pair: str) -> None:
    with pytest.raises(UsageError):
        session_env([pair], None, {})


def test_a_named_file_must_exist_and_the_default_one_may(tmp_path: Path) -> None:
    assert find_env_file(None, tmp_path) is None
    default = tmp_path / ".env"
    default.write_text("A=1\n")
    assert find_env_file(None, tmp_path) == default
    with pytest.raises(UsageError):
        find_env_file(tmp_path / "missing", tmp_path)


def test_a_file_that_is_not_text_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError):
        session_env([], path, {})


def test_a_daemon_gets_no_provider_variable() -> None:
    environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_CUSTOM": "c", "MODEL_ID": "m", "HOME": "/h"}
    assert daemon_env(environ) == {"HOME": "/h"}
