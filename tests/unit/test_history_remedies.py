"""What can be done about a history that the API refuses all the same, or that is too long."""

from __future__ import annotations

import pytest

from tests.support.conversations import (
    MODEL,
    assistant,
    call,
    code,
    fed,
    found,
    from_code,
    image,
    refusal,
    result,
    search,
    text,
    thinks,
    thought,
    user,
)

GO = user(text("go"))
NEXT = user(text("next"))


def test_calls_of_code_can_be_given_up_when_the_container_is_gone() -> None:
    asks = assistant(code("s"), from_code("a", "s"))
    history, _ = fed(GO, asks)
    assert not history.awaits_code()
    history.add(user(result("a")))
    assert history.awaits_code()
    assert history.forget_code()
    assert not history.awaits_code()
    assert history.messages == [GO, assistant(call("a")), user(result("a"))]
    assert history.forget_code() == []


def test_the_images_an_error_names_are_replaced_or_else_all() -> None:
    results = user(result("a", [image(), text("x")]), image())
    history, _ = fed(user(image()), assistant(call("a")), results)
    assert history.drop_images(["messages.2.content.0.content.0", "messages.9.content.0", "no"])
    first, _, last = history.messages
    assert first == user(image())
    assert [b["type"] for b in last["content"][0]["content"]] == ["text", "text"]
    assert last["content"][1] == image()
    assert history.drop_images(["messages.2.content.1.image.source.base64.data"])
    assert history.messages[2]["content"][1]["type"] == "text"
    assert history.messages[0] is first
    assert history.drop_images(["messages.7.content.0"])
    assert history.messages[0]["content"][0]["type"] == "text"
    assert history.drop_images() == []


def test_a_summary_takes_the_place_of_what_was_before_a_border() -> None:
    said = assistant(call("a")), user(result("a"), text("on")), assistant(thought(), text("so"))
    history, _ = fed(GO, *said, NEXT, assistant(search("s")), assistant(found("s")))
    assert [index for index in range(9) if history.is_border(index)] == [1, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="message 2"):
        history.compacted(user(text("sum")), 2)
    history.compacted(user(text("sum")), 3)
    assert history.messages[:3] == [user(text("sum")), assistant(text("so")), NEXT]
    assert refusal([*history.messages, NEXT]) is None
    history.compacted({"role": "user", "content": None}, 1)
    assert history.messages[0] == user(text("[the summary is lost]"))


def test_a_remedy_breaks_the_seals_behind_it_unless_it_is_done_again() -> None:
    history, _ = fed(GO, assistant(thought(), text("so")))
    history.strip_thinking()
    history.add(NEXT)
    answer = assistant(thought("2"), text("so"))
    seal = history.seal(answer)
    for again, kept in ((True, 1), (False, 0)):
        other, _ = fed(GO, assistant(text("so"), thought()))
        other, _ = fed(GO, assistant(thought(), text("so")))
        if again:
            other.strip_thinking()
        other.add(NEXT)
        other.add(answer, MODEL, seal)
        assert thinks(other.messages[-1:]) == kept
