"""Who trusts what: one canonical directory at a time, and nothing when in doubt."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client.cli.context import Context
from client.cli.output import Output
from client.cli.trust import COMMANDS
from client.errors import UsageError
from sidecar.protocol.errors import SidecarError
from sidecar.protocol.trust import TrustStore, project_root


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    (tmp_path / "state").mkdir()
    return TrustStore(tmp_path / "state")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "trust.json"


def repository(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    return path


def test_a_project_is_the_git_root_around_a_directory(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "a/b").mkdir(parents=True)
    assert project_root(repo / "a/b") == repo
    assert project_root(repo) == repo


def test_a_worktree_with_a_git_file_is_a_project(tmp_path: Path) -> None:
    (tmp_path / "tree/src").mkdir(parents=True)
    (tmp_path / "tree/.git").write_text("gitdir: /somewhere\n")
    assert project_root(tmp_path / "tree/src") == tmp_path / "tree"


def test_without_git_a_directory_is_its_own_project(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert project_root(tmp_path / "a") == tmp_path / "a"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_repository_that_somebody_else_put_above_is_no_project(tmp_path: Path) -> None:
    (repository(tmp_path) / "mine").mkdir()
    assert project_root(tmp_path / "mine") == tmp_path
    os.chown(tmp_path / ".git", 12345, 12345)
    assert project_root(tmp_path / "mine") == tmp_path / "mine"


def test_nothing_is_trusted_at_first(store: TrustStore, tmp_path: Path) -> None:
    assert not store.is_trusted(tmp_path)
    assert store.trusted() == {}


def test_trust_is_for_the_whole_project_whatever_directory_was_named(
    store: TrustStore, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "a").mkdir()
    (repo / "b").mkdir()
    assert store.trust(repo / "a") == repo
    assert store.is_trusted(repo / "b")
    assert list(store.trusted()) == [str(repo)]


def test_trust_is_not_inherited_by_nested_repositories_parents_or_neighbours(
    store: TrustStore, tmp_path: Path
) -> None:
    outer = repository(tmp_path / "outer")
    inner = repository(outer / "vendor/inner")
    neighbour = repository(tmp_path / "outer-two")
    store.trust(outer)
    assert not store.is_trusted(inner)
    assert not store.is_trusted(neighbour)
    store.untrust(outer)
    store.trust(inner)
    assert not store.is_trusted(outer)


def test_a_plain_directory_lends_its_trust_to_nothing_below(
    store: TrustStore, tmp_path: Path
) -> None:
    (tmp_path / "plain/below").mkdir(parents=True)
    store.trust(tmp_path / "plain")
    assert not store.is_trusted(tmp_path / "plain/below")


def test_a_link_is_trusted_as_what_it_leads_to(store: TrustStore, tmp_path: Path) -> None:
    safe, other = repository(tmp_path / "safe"), repository(tmp_path / "other")
    link = tmp_path / "link"
    link.symlink_to(safe)
    assert store.trust(link) == safe
    link.unlink()
    link.symlink_to(other)
    assert not store.is_trusted(link)


def test_trust_can_be_taken_back_from_a_directory_that_is_gone(
    store: TrustStore, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    store.trust(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert store.untrust(tmp_path / "gone") == tmp_path / "gone"
    assert store.untrust(tmp_path / "gone") is None
    assert store.trusted() == {}


def test_the_file_is_for_its_owner_alone(store: TrustStore, tmp_path: Path, file: Path) -> None:
    store.trust(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_trusting_again_keeps_the_first_date(store: TrustStore, tmp_path: Path, file: Path) -> None:
    store.trust(tmp_path)
    before = file.stat().st_ino
    store.trust(tmp_path)
    assert file.stat().st_ino == before


BROKEN = ["", "{", "[]", "null", '{"v":1}', '{"v":2,"trusted":{}}', '{"v":1,"trusted":["%s"]}',
          '{"v":1,"trusted":{"%s":1}}']  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_of_a_broken_store_nothing_is_trusted_and_nothing_is_overwritten(
    store: TrustStore, tmp_path: Path, file: Path, content: str
) -> None:
    content = content.replace("%s", str(tmp_path))
    file.write_text(content)
    assert not store.is_trusted(tmp_path)
    for ask in (store.trusted, lambda: store.trust(tmp_path), lambda: store.untrust(tmp_path)):
        with pytest.raises(SidecarError) as raised:
            ask()
        assert str(file) in raised.value.hint
    assert file.read_text() == content


def test_a_store_that_others_may_write_is_not_believed(
    store: TrustStore, tmp_path: Path, file: Path
) -> None:
    store.trust(tmp_path)
    file.chmod(0o666)
    assert not store.is_trusted(tmp_path)


def test_a_link_in_the_place_of_the_store_is_not_believed(
    store: TrustStore, tmp_path: Path, file: Path
) -> None:
    store.trust(tmp_path)
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert not store.is_trusted(tmp_path)


def test_writers_at_the_same_time_lose_nothing(store: TrustStore, tmp_path: Path) -> None:
    directories = [tmp_path / str(n) for n in range(24)]
    for directory in directories:
        directory.mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: TrustStore(tmp_path / "state").trust(each), directories))
    assert set(store.trusted()) == set(map(str, directories))


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    COMMANDS["trust"].arguments(parser)
    context = Context(parser.parse_args(argv), Output("json", "never"), None)
    return asyncio.run(COMMANDS["trust"].run(context))


def test_the_command_trusts_lists_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIDECAR_HOME", str(tmp_path / "home"))
    repo = repository(tmp_path / "repo")
    (repo / "sub").mkdir()
    monkeypatch.chdir(repo / "sub")
    assert run() == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(repo)}
    assert run("--list") == 0
    assert [each["path"] for each in json.loads(capsys.readouterr().out)["trusted"]] == [str(repo)]
    assert run(str(repo), "--remove") == 0
    capsys.readouterr()
    run("--list")
    assert json.loads(capsys.readouterr().out) == {"trusted": []}


def test_the_command_trusts_no_directory_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDECAR_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError):
        run(str(tmp_path / "nowhere"))
