"""MCP servers of a session, against real ones that misbehave (peers.md §C 34 and 38)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import mcp_stub
from tests.support.mcp_session import STUB, WAIT_S, running, stub
from tests.support.processes import is_alive

pytestmark = [pytest.mark.anyio, pytest.mark.soak]


async def test_tools_are_offered_sorted_from_all_pages_and_called(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub(exclude=["die"]), b=stub(include=["echo"])) as session:
        await session.until_state("connected", "b")
        await session.until_state("connected")
        expected = {f"a__{name}" for name in mcp_stub.TOOLS if name != "die"} | {"b__echo"}
        assert session.names() == sorted(expected)
        assert await session.text("b__echo", text="hi") == "hi"
        assert session.status()["server"]["name"] == "stub"


async def test_only_a_server_of_the_users_own_is_believed_to_read_only(tmp_path: Path) -> None:
    for source, believed in (("user", ["a__echo"]), ("project", [])):
        async with running(tmp_path, source, a=stub()) as session:
            if asked := session.status()["approval"]:
                session.servers.approve("a", asked["fingerprint"])
            await session.until_state("connected")
            assert [tool.name for tool in session.servers.tools() if tool.read_only] == believed
            assert {tool.family for tool in session.servers.tools()} == {"mcp"}


async def test_fifty_calls_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub()) as session:
        await session.until_state("connected")
        texts = [str(number) for number in range(50)]
        calls = [session.text("a__echo", text=t, after_s=(50 - int(t)) / 200) for t in texts]
        assert await asyncio.gather(*calls) == texts


@pytest.mark.parametrize("mode", ["hang", "listless"])
async def test_a_server_that_does_not_answer_fails_in_its_time_and_others_live(
    tmp_path: Path, mode: str
) -> None:
    hanging = stub(mode, startup_timeout_s=1)
    async with running(tmp_path, a=hanging, b=stub()) as session:
        assert await session.servers.wait_ready(print) == ""
        assert await session.text("b__echo", text="hi") == "hi"
        await session.until_state("failed")
        assert session.status()["reason"] == "no answer within 1 s"


async def test_a_server_that_ends_at_once_is_tried_three_times_and_explained(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, a=stub("exit", required=True)) as session:
        waited: list[str] = []
        async with asyncio.timeout(WAIT_S):
            missing = await session.servers.wait_ready(waited.append)
        assert waited == ["a"]
        assert "a is failed: it exited with status 3" in missing
        assert session.status()["stderr"].splitlines() == ["no such database"] * 3


async def test_a_missing_command_and_an_unset_variable_are_named(tmp_path: Path) -> None:
    raw = {"a": {"command": "nonesuch"}, "b": {"command": "x", "args": ["${NOWHERE}"]}}
    async with running(tmp_path, **raw) as session:
        await session.until_state("failed", "b")
        await session.until_state("failed")
        assert session.status()["reason"] == "there is no nonesuch"
        assert "mcpServers.b.args.0: NOWHERE is not set" in session.status("b")["reason"]


@pytest.mark.parametrize("mode", ["", "child"])
async def test_a_death_during_a_call_fails_it_at_once_and_the_server_comes_back(
    tmp_path: Path, mode: str
) -> None:
    async with running(tmp_path, a=stub(mode)) as session:
        await session.until_state("connected")
        names = session.names()
        result = await session.call("a__die")
        assert result.is_error
        assert "outcome of the call unknown: it exited with status 7" in result.content
        assert "I am dying" in result.content
        await session.until_state("failed")
        assert session.names() == names
        absent = await session.call("a__echo", text="hi")
        assert absent.is_error and "MCP server a is not there" in absent.content
        await session.until_state("connected")
        assert await session.text("a__echo", text="hi") == "hi"


@pytest.mark.parametrize("mode", ["flood", "junk"])
async def test_a_flood_of_stderr_and_junk_on_stdout_do_no_harm(tmp_path: Path, mode: str) -> None:
    async with running(tmp_path, a=stub(mode)) as session:
        await session.until_state("connected")
        assert await session.text("a__echo", text="hi") == "hi"


async def test_a_line_of_20_mib_is_taken_and_one_of_40_is_an_error_of_its_call(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, a=stub()) as session:
        await session.until_state("connected")
        large = await session.text("a__bytes", n=20 << 20)
        assert "20MB, too long to show" in large
        assert [path.stat().st_size for path in (tmp_path / "spill").iterdir()] == [20 << 20]
        too_large = await session.call("a__bytes", n=40 << 20)
        assert too_large.is_error and "longer than" in too_large.content
        assert await session.text("a__echo", text="hi") == "hi"


async def test_half_a_character_does_not_lose_an_answer_nor_the_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, a=stub()) as session:
        await session.until_state("connected")
        assert await session.text("a__odd") == "half ? a character"
        refused = await session.call("a__echo", text="\ud800")
        assert refused.is_error and "half a character" in refused.content
        assert await session.text("a__echo", text="hi") == "hi"


async def test_progress_keeps_a_call_alive_and_silence_ends_it(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub(timeout_s=1)) as session:
        await session.until_state("connected")
        assert await session.text("a__slow", steps=8, pause_s=0.25) == "done"
        assert session.output == [f"step {step}\n" for step in range(8)]
        silent = await session.call("a__never")
        assert silent.is_error and "no answer and no progress for 1 s" in silent.content


async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_connection_stays(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, a=stub()) as session:
        await session.until_state("connected")
        pid = await session.text("a__pid")
        async with asyncio.TaskGroup() as group:
            call = group.create_task(session.call("a__never"))
            await asyncio.sleep(0)
            await session.text("a__pid")  # the first was sent before
            call.cancel()
        assert len(json.loads(await session.text("a__cancelled"))) == 1
        assert await session.text("a__pid") == pid


@pytest.mark.parametrize("mode", ["", "modern"])
async def test_changed_tools_are_told_in_both_protocols(tmp_path: Path, mode: str) -> None:
    async with running(tmp_path, a=stub(mode)) as session:
        await session.until_state("connected")
        protocol = session.status()["server"]["protocol"]
        assert protocol == ("2026-07-28" if mode else "2025-06-18")
        await session.text("a__rename")
        await session.until(lambda: (["a__renamed"], ["a__never"]) in session.changes)
        assert "a__never" not in session.names()
        gone = await session.call("a__never")
        assert gone.is_error and "offers no tool 'never' any more" in gone.content


async def test_a_session_without_servers_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as session:
        assert (await session.servers.wait_ready(print), session.names()) == ("", [])


async def test_a_list_without_an_end_is_a_failure(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub("endless")) as session:
        await session.until_state("failed")
        assert session.status()["reason"] == "its list of tools has no end"


async def test_a_server_gets_a_small_environment_its_own_and_nothing_of_ours(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, a=stub(env={"TOKEN": "${SECRET}"})) as session:
        await session.until_state("connected")
        env = json.loads(await session.text("a__env"))
        ours = {"PATH", "SIDECAR_SESSION", "TOKEN"}
        assert {name for name in env if not name.startswith(("LC_", "__"))} == ours
        assert (env["TOKEN"], env["SIDECAR_SESSION"]) == ("s3cret", "s")
        assert session.status()["env"] == ["TOKEN"]
        assert "s3cret" not in json.dumps(session.servers.status())


async def test_a_restart_is_a_new_process_and_the_old_one_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub("deaf")) as session:
        await session.until_state("connected")
        before = int(await session.text("a__pid"))
        session.changes.clear()
        session.servers.restart("a")
        await session.until(lambda: len(session.changes) == 3)  # connecting, tools, connected
        assert not is_alive(before)
        after = int(await session.text("a__pid"))
        assert after != before
    assert not is_alive(after)


async def test_a_projects_server_starts_once_it_is_approved_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, "project", a=stub()) as session:
        await session.until_state("disabled")
        asked = session.status()["approval"]
        assert asked["args"] == STUB
        assert not session.servers.approve("a", "0" * 64)
        assert session.servers.approve("a", asked["fingerprint"])
        await session.until_state("connected")
        assert session.status()["approval"] is None


async def test_a_disabled_server_is_not_started(tmp_path: Path) -> None:
    async with running(tmp_path, a=stub(enabled=False)) as session:
        await session.servers.wait_ready(print)
        assert (session.status()["state"], session.names()) == ("disabled", [])
        session.servers.restart("a")
        await session.until(lambda: len(session.changes) > 1)  # it has thought about it
        assert session.status()["state"] == "disabled"


def test_a_session_without_servers_does_not_import_the_library() -> None:
    code = "import sys, session_worker.mcp_servers.servers; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"mcp", "jsonschema", "httpx2"} & set(loaded)
