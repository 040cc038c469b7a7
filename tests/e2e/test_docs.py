"""The pages, done as they say, with the demo model. The programs of others that docs/clients.md
connects are in tests/compat."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.docs import CLIENTS, ROOT, START, Reader, agents, blocks, needs_curl_and_jq
from tests.support.stdio_agent import StdioAgent


@pytest.fixture
def reader(daemon: Daemon, tmp_path: Path) -> Reader:
    return Reader(daemon, tmp_path / "me")


@needs_curl_and_jq
def test_the_readme_is_as_it_says(reader: Reader) -> None:
    subprocess.run(["git", "init", "--quiet", "-b", "trunk"], cwd=reader.project, check=True)
    _, settings, *use = blocks("README.md", "Use it")  # test_install.py installs
    reader.follow([settings], cwd=ROOT)
    assert (reader.home / ".config/sidecar/.env").exists()
    said = reader.follow(use)
    assert "trunk" in said
    assert "run.completed" in said
    assert (reader.project / "made").exists()


@needs_curl_and_jq
def test_curl_does_all_that_the_page_says(reader: Reader) -> None:
    openapi = blocks("docs/acp.md", "Describing itself")
    said = reader.follow([*START, *openapi, *blocks(CLIENTS, "curl")])
    for sign in ('"openapi"', "awaiting", "run.completed", '"cancelling"', "## run `sleep 600`"):
        assert sign in said
    assert "permission_resolved" in said.rpartition('"incarnation"')[2], "its events, at the end"
    assert (reader.project / "made").exists()


def test_a_program_of_the_library_runs_a_session(reader: Reader) -> None:
    assert "final_answer" in reader.follow(blocks(CLIENTS, "The Python library"))
    assert (reader.project / "made").exists()


def test_code_calls_tools_in_a_session_that_offers_it(reader: Reader) -> None:
    assert "↳ list_dir" in reader.follow(blocks("docs/programmatic-tools.md"))


def test_the_agent_that_editors_are_told_of_answers_them(reader: Reader) -> None:
    (command,) = agents([*blocks(CLIENTS, "Editors"), *blocks(CLIENTS, "acpx")])
    with subprocess.Popen(
        command,
        env=reader.environ,
        cwd=reader.project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        agent = StdioAgent(process)
        assert agent.initialize()["agentInfo"]["name"] == "sidecar"
        agent.close_stdin()
        assert agent.left() == (0, "")
        agent.reader.join()
