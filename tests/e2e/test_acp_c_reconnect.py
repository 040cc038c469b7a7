"""A client whose stream breaks comes back with the number of the event it has seen last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Reply, text
from tests.support.acp_client import HttpClient, over_http
from tests.support.daemon import Daemon
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
WORDS = " ".join(map(str, range(60)))


async def heard(client: HttpClient, enough: Callable[[Json], Any]) -> list[tuple[int | None, Json]]:
    """What the session's stream says up to there, with the numbers; then it breaks."""
    told: list[tuple[int | None, Json]] = []
    headers = client.headers | {"Acp-Session-Id": client.session_id}
    async with client.http.get("/acp", headers=headers) as response:
        number = None
        async for line in response.content:
            if line.startswith(b"id: "):
                number = int(line[4:])
            if line.startswith(b"data: "):
                told.append((number, json.loads(line[6:])))
                number = None
                if enough(told[-1][1]):
                    return told
    raise AssertionError(f"not enough: {told}")


def says(word: str) -> Callable[[Json], Any]:
    return lambda m: word in json.dumps(m.get("params", {}).get("update", {}).get("content", ""))


async def test_it_goes_on_behind_that_event_and_each_comes_once(scripted: Scripted) -> None:
    scripted.answers.append(Reply([text(WORDS)], tps=100))
    async with over_http(scripted.endpoint, streams="none") as client:
        await client.start("session/new", cwd="/", mcpServers=[])
        request_id = await client.begin("go")
        told = await heard(client, says("40"))
        # what follows the first words was sent and never arrived
        first = next(index for index, (_, message) in enumerate(told) if says("0")(message))
        seen = told[first][0]
        for _, message in told[: first + 1]:
            client.received(message)
        assert len(told) > first + 5
        assert await client.listen(client.session_id, seen) == 200
        assert (await client.answer_to(request_id))["result"]["stopReason"] == "end_turn"
        assert client.texts() == WORDS


async def test_answers_that_were_on_their_way_come_again(scripted: Scripted) -> None:
    scripted.answers.append(FINE)
    async with over_http(scripted.endpoint, streams="none") as client:
        await client.start("session/new", cwd="/", mcpServers=[])
        request_id = await client.begin("go")
        mode = await client.start("session/set_mode", **client.named, modeId="auto")
        told = await heard(client, lambda m: m.get("id") == request_id)
        first = next(number for number, _ in told if number is not None)
        await client.listen(client.session_id, first)
        assert "result" in await client.answer_to(mode)
        assert "result" in await client.answer_to(request_id)
        assert client.seen[-1]["id"] == request_id
        assert len([m for m in client.seen if m.get("id") == request_id]) == 1
        assert client.texts() == "fine"
        assert client.updates("user_message_chunk") == []  # it is still its own


async def test_a_question_comes_again_under_its_id_unless_it_is_settled(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, mode="ask") as scripted:
        scripted.answers.extend([Reply([bash("touch made")]), Reply([bash("touch more")]), FINE])
        async with over_http(scripted.endpoint, streams="none") as client:
            await client.start("session/new", cwd="/", mcpServers=[])
            request_id = await client.begin("go")
            asks: Callable[[Json], Any] = lambda m: m.get("method", "").endswith("permission")  # noqa: E731
            told = await heard(client, asks)
            question, first = told[-1][1], next(n for n, _ in told if n is not None)
            await client.choose(question, "allow_once")
            told = await heard(client, asks)
            assert told[-1][1]["id"] != question["id"]
            await client.listen(client.session_id, first)
            assert (await client.question())["id"] == told[-1][1]["id"]
            await client.choose(told[-1][1], "reject_once")
            await client.answer_to(request_id)
            assert len([m for m in client.seen if asks(m)]) == 1


async def test_what_fell_out_of_the_ring_meanwhile_is_told_exactly(
    daemon: Daemon, work: Path
) -> None:
    with scripted_session(daemon, work, ring_bytes=64 * 1024) as scripted:
        async with over_http(scripted.endpoint, streams="none") as client:
            await client.start("session/new", cwd="/", mcpServers=[])
            scripted.answers.append(FINE)
            await client.begin("go")
            told = await heard(client, says("fine"))
            seen = [number for number, _ in told if number is not None][-1]
            long = Reply([text("word " * 20_000)])
            await asyncio.to_thread(scripted.prompt, long)
            await client.listen(client.session_id, seen)
            gap = await client.until(lambda m: "sidecar/gap" in json.dumps(m), "the gap")
            missed = gap["params"]["update"]["_meta"]["sidecar/gap"]
            assert missed["from"] == seen + 1
            await client.until(lambda _: client.numbers, "what comes behind it")
            assert missed["to"] < client.numbers[0]


@pytest.mark.parametrize("seen", ["x", "-1", "1.5", 10**18, "9" * 5000])
async def test_a_number_that_is_none_or_of_the_future_is_refused(
    scripted: Scripted, seen: int | str
) -> None:
    async with over_http(scripted.endpoint, streams="none") as client:
        await client.start("session/new", cwd="/", mcpServers=[])
        for name in (None, client.session_id):
            assert await client.listen(name, seen) == 400
