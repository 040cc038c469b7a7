"""Skills as people use them from an editor: `/name` and what it is to work on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_worker.demo_model import Reply, text
from tests.support.acp_client import AcpClient, over_websocket
from tests.support.scripted import FINE, Scripted

Json = dict[str, Any]


def write(work: Path, name: str, *more: str) -> Path:
    path = work / ".agents/skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    head = ["---", f"name: {name}", f"description: about {name}", *more, "---"]
    path.write_text("\n".join([*head, "Print $ARGUMENTS twice.", ""]))
    return path


async def offered(client: AcpClient, count: int) -> list[str]:
    """The names of the newest list, once there are so many."""

    def newest() -> list[Json]:
        lists = client.updates("available_commands_update")
        return lists[-1]["availableCommands"] if lists else []

    await client.until(lambda _: len(newest()) == count, f"{count} commands")
    return [command["name"] for command in newest()]


async def test_a_skill_is_offered_before_the_first_prompt_and_runs_by_its_name(
    scripted: Scripted, work: Path
) -> None:
    write(work, "shout", "argument-hint: a word")
    write(work, "secret", "user-invocable: false")
    async with over_websocket(scripted.endpoint) as client:
        await client.new()
        assert await offered(client, 2) == ["compact", "shout"]
        late = write(work, "whisper")
        for prompt in ("/shout hey", "/secret hey", "/nothing hey"):
            scripted.answers.append(FINE)
            assert await client.prompt(prompt) == "end_turn"
        assert await offered(client, 3) == ["compact", "shout", "whisper"]
        said = [[b["text"] for b in m["content"]] for m in scripted.sent if m["role"] == "user"]
        assert said[0][0] == "/shout hey" and "Print hey twice." in said[0][1]
        assert said[1:] == [["/secret hey"], ["/nothing hey"]]
        late.unlink()  # what was offered and is gone is a prompt like any other
        scripted.answers.append(FINE)
        assert await client.prompt("/whisper hey") == "end_turn"
        assert scripted.sent[-1]["content"][0]["text"] == "/whisper hey"
        assert len(scripted.sent[-1]["content"]) == 1
    async with over_websocket(scripted.endpoint) as client:
        await client.load()
        assert client.texts("user_message_chunk").startswith("/shout hey/secret hey")
        assert await offered(client, 3)


async def test_a_command_that_waited_for_another_worker_still_runs(
    scripted: Scripted, work: Path
) -> None:
    write(work, "shout")
    async with over_websocket(scripted.endpoint) as client:
        await client.new()
        scripted.answers.append(Reply([text("word " * 50)], tps=1))
        await client.begin("go")
        await client.begin("/shout hey")
        scripted.was_asked(1)
        scripted.answers.extend([FINE, FINE])
        scripted.crash()
    scripted.was_asked(3)
    assert "Print hey twice." in str(scripted.sent)
