"""A session over ACP-C, over either transport: prompts, questions, choices."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import ApiError, Fault, Reply, text
from tests.support.acp_client import NOTICES, over_http, over_websocket
from tests.support.daemon import Daemon
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
TRANSPORTS = {"http": over_http, "websocket": over_websocket}


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest) -> Any:
    return TRANSPORTS[request.param]


Connect = Any
"""`over_http` or `over_websocket`."""
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
        "0000000049454e44ae426082"
    )
).decode()


@pytest.fixture
def asking(daemon: Daemon, work: Path) -> Any:
    with scripted_session(daemon, work, mode="ask") as scripted:
        yield scripted


async def test_a_prompt_streams_its_updates_and_answers_behind_all_of_them(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(FINE)
    async with connect(scripted.endpoint) as client:
        await client.new()
        assert await client.prompt() == "end_turn"
        answered = len(client.seen)
        assert client.texts() == "fine"
        await client.call("session/list")
        late = [m for m in client.seen[answered:] if m.get("method") == "session/update"]
        assert late == []


async def test_initialize_tells_what_there_is_and_offers_version_1_to_all(
    scripted: Scripted, connect: Connect
) -> None:
    async with connect(scripted.endpoint) as client:
        told = client.seen[0]["result"]
        assert told["protocolVersion"] == 1 and told["authMethods"] == []
        capabilities = told["agentCapabilities"]
        assert capabilities["loadSession"]
        assert set(capabilities["sessionCapabilities"]) == {"list", "resume", "close"}
        assert await client.refused("authenticate", methodId="x") == -32602


async def test_a_new_session_is_the_one_of_this_endpoint_once(
    scripted: Scripted, work: Path, connect: Connect
) -> None:
    async with connect(scripted.endpoint) as client:
        session = await client.new()
        assert session["sessionId"] == scripted.endpoint.session_id
        assert session["_meta"] == {"sidecar/cwd": str(work), "sidecar/ignored": ["cwd"]}
        assert await client.refused("session/new", cwd="/", mcpServers=[]) == -32600
        listed = (await client.call("session/list"))["sessions"]
        assert [entry["cwd"] for entry in listed] == [str(work)]
        assert (await client.call("session/list", cwd="/elsewhere"))["sessions"] == []
    async with connect(scripted.endpoint) as another:
        assert (await another.new())["sessionId"] == scripted.endpoint.session_id


async def test_the_answer_to_new_comes_before_any_update(
    scripted: Scripted, connect: Connect
) -> None:
    async with connect(scripted.endpoint) as client:
        await client.new()
        await client.update("available_commands_update")
        first = client.position(lambda m: m.get("method") == "session/update")
        assert first > client.position(lambda m: "sessionId" in m.get("result", {}))


async def test_what_is_wrong_is_refused_and_the_connection_lives(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(FINE)
    async with connect(scripted.endpoint) as client:
        elsewhere = {"sessionId": "no-such-session"}
        prompt = [{"type": "text", "text": "go"}]
        assert await client.refused("session/nonsense", **client.named) == -32601
        assert await client.refused("_vendor/thing") == -32601
        assert await client.refused("session/delete", **client.named) == -32601
        assert await client.refused("session/new", cwd="relative", mcpServers=[]) == -32602
        assert await client.refused("session/prompt", **client.named) == -32602
        assert await client.refused("session/prompt", **client.named, prompt=[]) == -32602
        assert await client.refused("session/prompt", **elsewhere, prompt=prompt) == -32002
        unknown = await client.refused("session/load", **elsewhere, cwd="/", mcpServers=[])
        assert unknown == -32002
        await client.notify("_vendor/thing")
        await client.notify("session/cancel", **elsewhere)
        await client.notify("$/cancel_request", requestId=[7])
        await client.reply({"id": "never-asked"}, {"outcome": {"outcome": "cancelled"}})
        await client.new()
        assert await client.prompt() == "end_turn"


async def test_a_cancelled_prompt_answers_cancelled(scripted: Scripted, connect: Connect) -> None:
    async with connect(scripted.endpoint) as client:
        await client.new()
        for cancel in ("session/cancel", "$/cancel_request"):
            scripted.answers.append(Reply([bash("sleep 60")]))
            request_id = await client.begin("wait")
            running = len(client.updates("tool_call"))
            await client.until(
                lambda m, n=running: len(client.updates("tool_call")) > n, "the call"
            )
            if cancel == "session/cancel":
                await client.notify(cancel, **client.named)
            else:
                await client.notify(cancel, requestId=request_id)
            answer = await client.answer_to(request_id)
            assert answer["result"]["stopReason"] == "cancelled"
            assert client.seen[-1] == answer


async def test_a_prompt_during_another_is_queued_up_to_a_bound(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(Reply([bash("sleep 60")]))
    async with connect(scripted.endpoint) as client:
        await client.new()
        first = await client.begin("first")
        await client.update("tool_call")
        queued = [await client.begin("more") for _ in range(8)]
        prompt = [{"type": "text", "text": "too much"}]
        assert await client.refused("session/prompt", **client.named, prompt=prompt) == -32600
        await client.notify("session/cancel", **client.named)
        for request_id in (first, *queued):
            answer = await client.answer_to(request_id)
            assert answer["result"]["stopReason"] == "cancelled"


async def test_an_error_of_the_run_is_an_error_of_the_prompt(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(ApiError(401, "no such key"))
    async with connect(scripted.endpoint) as client:
        await client.new()
        answer = await client.answer_to(await client.begin("go"))
        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["sidecar/stop_reason"] == "error"


async def test_viewers_see_the_prompt_and_who_sent_it_does_not(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(FINE)
    async with connect(scripted.endpoint) as author, over_websocket(scripted.endpoint) as viewer:
        await author.new()
        await viewer.new()
        await author.prompt("what is it?")
        await viewer.update("agent_message_chunk")
        assert viewer.texts("user_message_chunk") == "what is it?"
        assert author.updates("user_message_chunk") == []
        title = await author.update("session_info_update")
        assert title["title"] == "what is it?"


async def test_the_first_answer_counts_and_the_question_is_withdrawn_from_others(
    asking: Scripted, connect: Connect
) -> None:
    asking.answers.extend([Reply([bash("touch made")]), FINE])
    async with connect(asking.endpoint) as author, over_websocket(asking.endpoint) as other:
        await author.new()
        await other.new()
        request_id = await author.begin("go")
        mine, theirs = await author.question(), await other.question()
        assert (
            mine["params"]["toolCall"]["toolCallId"] == theirs["params"]["toolCall"]["toolCallId"]
        )
        await other.choose(theirs, "allow_once")
        withdrawn = await author.until(lambda m: m.get("method") == "$/cancel_request", "withdrawn")
        assert withdrawn["params"] == {"requestId": mine["id"]}
        await author.choose(mine, "reject_once")  # too late
        assert (await author.answer_to(request_id))["result"]["stopReason"] == "end_turn"
        assert [m for m in other.seen if m.get("method") == "$/cancel_request"] == []
        assert author.updates("tool_call_update")[-1]["status"] == "completed"


async def test_a_question_that_is_cancelled_cancels_the_prompt(
    asking: Scripted, connect: Connect
) -> None:
    asking.answers.append(Reply([bash("touch made")]))
    async with connect(asking.endpoint) as client:
        await client.new()
        request_id = await client.begin("go")
        await client.reply(await client.question(), {"outcome": {"outcome": "cancelled"}})
        assert (await client.answer_to(request_id))["result"]["stopReason"] == "cancelled"


async def test_a_client_that_comes_later_is_asked_what_still_waits(
    asking: Scripted, connect: Connect
) -> None:
    asking.answers.extend([Reply([bash("touch made")]), FINE])
    run_id = asking.start()
    async with over_websocket(asking.endpoint) as first:
        await first.new()
        await first.question()
    async with connect(asking.endpoint) as client:
        await client.resume()
        await client.choose(await client.question(), "allow_once")
        assert asking.ended(run_id)["status"] == "completed"


async def test_what_is_no_answer_is_never_a_yes_and_leaves_it_to_others(
    asking: Scripted, work: Path, connect: Connect
) -> None:
    asking.answers.extend([Reply([bash("touch made")]), FINE])
    async with connect(asking.endpoint) as broken, over_websocket(asking.endpoint) as able:
        await broken.new()
        await able.new()
        request_id = await broken.begin("go")
        question = await broken.question()
        await broken.choose(question, "yes_please")
        await able.choose(await able.question(), "reject_once")
        assert (await broken.answer_to(request_id))["result"]["stopReason"] == "end_turn"
        assert not (work / "made").exists()


async def test_mode_and_model_can_be_chosen_and_all_are_told(
    scripted: Scripted, connect: Connect
) -> None:
    async with connect(scripted.endpoint) as client, over_websocket(scripted.endpoint) as viewer:
        session = await client.new()
        await viewer.new()
        options = {option["id"]: option for option in session["configOptions"]}
        assert session["modes"]["currentModeId"] == options["mode"]["currentValue"] == "bypass"
        await client.call("session/set_mode", **client.named, modeId="plan")
        assert (await viewer.update("current_mode_update"))["currentModeId"] == "plan"
        model = options["model"]["currentValue"]
        chosen = await client.call(
            "session/set_config_option", **client.named, configId="model", value=model
        )
        assert {o["id"]: o["currentValue"] for o in chosen["configOptions"]} == {
            "mode": "plan",
            "model": model,
        }
        await viewer.update("config_option_update")
        wrong = {"configId": "model", "value": "no-such-model"}
        assert await client.refused("session/set_mode", **client.named, modeId="yolo") == -32602
        assert await client.refused("session/set_config_option", **client.named, **wrong) == -32602


async def test_all_content_but_audio_reaches_the_model(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(FINE)
    resource: Json = {"uri": "file:///a.txt", "text": "in </resource> it"}
    prompt = [
        {"type": "text", "text": "look at "},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b.txt"},
        {"type": "resource", "resource": resource},
        {"type": "image", "mimeType": "image/png", "data": PNG},
        {"type": "resource", "resource": {"uri": "x:", "blob": "aGk=", "mimeType": "text/plain"}},
    ]
    audio = [{"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]
    async with connect(scripted.endpoint) as client:
        await client.new()
        assert await client.refused("session/prompt", **client.named, prompt=audio) == -32602
        await client.call("session/prompt", **client.named, prompt=prompt)
    (said,) = scripted.sent
    assert [block["type"] for block in said["content"]] == ["text", "text", "text", "image", "text"]
    assert said["content"][1]["text"] == "[b.txt](file:///b.txt)"


async def test_an_answer_that_broke_off_is_taken_back(scripted: Scripted, connect: Connect) -> None:
    broken = Reply([text("half of it, and more to come")], fault=Fault("reset", after=4))
    scripted.answers.extend([broken, FINE])
    async with connect(scripted.endpoint) as client:
        await client.new()
        assert await client.prompt() == "end_turn"
        taken = next(u for u in client.updates() if "sidecar/discarded" in u.get("_meta", {}))
        discarded = taken["_meta"]["sidecar/discarded"]
        chunks = client.updates("agent_message_chunk")
        assert (
            "".join(c["content"]["text"] for c in chunks if c["messageId"] != discarded) == "fine"
        )


async def test_notices_go_to_those_who_take_them(
    scripted: Scripted, work: Path, connect: Connect
) -> None:
    scripted.answers.append(FINE)
    skill = work / ".agents/skills/bad/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("no front matter")
    async with (
        connect(scripted.endpoint, NOTICES) as client,
        over_websocket(scripted.endpoint) as other,
    ):
        await client.new()
        await other.new()
        await client.prompt()
        await other.update("agent_message_chunk")
        (notice,) = client.updates("notice")
        assert notice["severity"] == "warning" and "A skill is not used" in notice["title"]
        assert other.updates("notice") == [] and other.texts() == "fine"


async def test_compacting_is_a_command_like_any_prompt(
    scripted: Scripted, connect: Connect
) -> None:
    async with connect(scripted.endpoint) as client:
        await client.new()
        commands = await client.update("available_commands_update")
        assert [command["name"] for command in commands["availableCommands"]] == ["compact"]
        answer = await client.answer_to(await client.begin("/compact the names"))
        assert answer["error"]["data"]["type"] == "compaction_failed"
        assert scripted.bodies == []  # the model was not asked


async def test_a_closed_session_is_cancelled_for_the_client_and_lives_on(
    scripted: Scripted, connect: Connect
) -> None:
    scripted.answers.append(Reply([bash("sleep 60")]))
    async with connect(scripted.endpoint) as client:
        await client.new()
        request_id = await client.begin("wait")
        await client.update("tool_call")
        assert await client.call("session/close", **client.named) == {}
        assert (await client.answer_to(request_id))["result"]["stopReason"] == "cancelled"
        closed = len(client.seen)
        scripted.completes()
        await client.call("session/list")
        assert [m for m in client.seen[closed:] if m.get("method") == "session/update"] == []
