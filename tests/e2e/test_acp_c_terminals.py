"""Commands in the client's terminal: only where the settings want it, and ended like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, tool_use
from sidecar.protocol import bounds
from tests.support.acp_client import AcpClient, over_http, over_websocket, told
from tests.support.acp_terminal import TERMINAL, Terminals
from tests.support.daemon import Daemon
from tests.support.questions import notices
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
WANTED = "[tools]\nclient_terminal = true\n"
Session = Callable[[str], Scripted]


@pytest.fixture
def session(daemon: Daemon, work: Path) -> Iterator[Session]:
    """Makes sessions under these settings."""
    before = (daemon.home / "config.toml").read_text()
    with ExitStack() as stack:

        def create(settings: str) -> Scripted:
            daemon.configure(before + settings)
            return stack.enter_context(scripted_session(daemon, work))

        yield create
        daemon.configure(before)


async def test_a_command_runs_in_the_terminal_of_the_client_that_asked(
    session: Session, work: Path
) -> None:
    scripted, terminals = session(WANTED), Terminals()
    (work / "sub").mkdir()
    async with (
        over_websocket(scripted.endpoint, TERMINAL) as client,
        over_http(scripted.endpoint, TERMINAL) as viewer,
        terminals.of(client),
    ):
        await client.new()
        await viewer.new()
        script = "cd sub; echo $SIDECAR_SESSION; cat; exit 3"
        first, second, third = await told(
            client, scripted, bash(script), bash("pwd"), bash("yes | head -c 100000")
        )
        assert first.startswith(f"{client.session_id}\n[exit 3 · ")
        assert first.endswith("cwd sub · in the client's terminal]")
        assert second.startswith(f"{work.resolve()}/sub\n[exit 0")
        assert "beginning omitted" in third and len(third) < bounds.BASH_RESULT_CHARS + 200
        assert terminals.methods == ["create", "wait_for_exit", "output", "release"] * 3
        names = {pair["name"] for pair in terminals.asked[0]["params"]["env"]}
        assert "SIDECAR_SESSION" in names and "ANTHROPIC_API_KEY" not in names
        assert len(shown(client)) == 3
        await viewer.until(lambda _: viewer.texts() == "fine", "the viewer has all of it")
        assert shown(viewer) == []


def shown(client: AcpClient) -> list[Json]:
    updates = client.updates("tool_call_update")
    return [c for u in updates for c in u.get("content", ()) if c["type"] == "terminal"]


async def test_a_command_that_lasts_too_long_is_killed(session: Session) -> None:
    scripted, terminals = session(WANTED), Terminals()
    call = tool_use("bash", {"command": "echo begun; sleep 600", "timeout_s": 1})
    async with over_websocket(scripted.endpoint, TERMINAL) as client, terminals.of(client):
        await client.new()
        (said,) = await told(client, scripted, call)
        assert said.startswith("begun\n[ended: timed out after 1s · ")
        assert terminals.methods == ["create", "wait_for_exit", "kill", "output", "release"]


@pytest.mark.parametrize("mute", ["", "create"])
async def test_a_cancelled_command_is_killed_and_its_terminal_released(
    session: Session, mute: str
) -> None:
    scripted, terminals = session(WANTED), Terminals()
    terminals.mute = {mute}
    async with over_websocket(scripted.endpoint, TERMINAL) as client, terminals.of(client):
        await client.new()
        scripted.answers.append(Reply([bash("sleep 600")]))
        prompt = await client.begin("go")
        last = "terminal/create" if mute else "terminal/wait_for_exit"
        await client.until(lambda m: m.get("method") == last, "it runs")
        await client.notify("session/cancel", **client.named)
        if mute:  # the answer comes behind the cancellation
            await client.until(lambda m: m.get("method") == "$/cancel_request", "withdrawn")
            terminals.mute = set()
            request = next(m for m in client.seen if m.get("method") == last)
            await terminals.answer(client, request)
        assert (await client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
        assert terminals.methods[-2:] == ["kill", "release"]


async def test_a_client_that_leaves_takes_what_is_known_of_its_command_along(
    session: Session,
) -> None:
    scripted, terminals = session(WANTED), Terminals()
    terminals.mute = {"wait_for_exit"}
    async with over_websocket(scripted.endpoint, TERMINAL) as client:
        scripted.answers.extend([Reply([bash("true")]), Reply([bash("echo here")]), FINE])
        await client.new()
        await client.begin("go")
        request = await client.until(lambda m: m.get("method") == "terminal/create", "asked")
        await client.reply(request, {"terminalId": "t"})
        await client.until(lambda m: m.get("method") == "terminal/wait_for_exit", "waited for")
    scripted.was_asked(3)
    said = str(scripted.sent)
    assert "lost: the client has left" in said and "here\\n[exit 0" in said


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("", ""),
        (WANTED + '[sandbox]\nlevel = "guard"\n', "outside of guard"),
    ],
)
async def test_without_the_setting_or_with_a_sandbox_commands_stay_in_the_session(
    session: Session, settings: str, reason: str
) -> None:
    scripted, terminals = session(settings), Terminals()
    async with over_websocket(scripted.endpoint, TERMINAL) as client, terminals.of(client):
        await client.new()
        (said,) = await told(client, scripted, bash("echo hi"))
        assert said.startswith("hi\n[exit 0")
        assert terminals.asked == []
        assert any(reason in title for title in notices(scripted)) or not reason
