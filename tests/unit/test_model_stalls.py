"""A model that falls silent is given up after a bound, here a short one. The server is real."""

from __future__ import annotations

from typing import Any

import pytest

from session_worker.demo_model import DemoModel, Fault, Reply, queue_script, text
from session_worker.model import Model
from session_worker.model_error import ModelError
from session_worker.provider import Provider
from session_worker.recovery import Retry, Tried, advise
from sidecar.protocol import bounds

BODY = b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hello"}]}'


async def events(answer: Reply) -> list[dict[str, Any]]:
    """What one call brings. Raises `ModelError`."""
    async with DemoModel(queue_script([answer])).serve_tcp() as base_url:
        model = Model(Provider("m", base_url=base_url, api_key="k"))
        try:
            return [event async for event in model.stream(BODY)]
        finally:
            await model.close()


@pytest.mark.parametrize(
    ("after", "status", "streamed"),
    [(0, None, False), (1, 200, True), (4, 200, True)],
    ids=["before the first byte", "after the first event", "in a sentence"],
)
async def test_silence_is_an_error_that_is_worth_a_retry(
    monkeypatch: pytest.MonkeyPatch, after: int, status: int | None, streamed: bool
) -> None:
    monkeypatch.setattr(bounds, "MODEL_STALL_S", 0.1)
    with pytest.raises(ModelError) as raised:
        await events(Reply([text("half a sentence that stops")], fault=Fault("stall", after)))
    assert (raised.value.kind, raised.value.status) == ("timeout_error", status)
    assert advise(raised.value, Tried(), 0.0) == Retry(0.0, "timeout_error", streamed)


async def test_silence_after_the_end_of_an_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MODEL_END_S", 0.05)
    heard = await events(Reply([text("whole")], fault=Fault("stall", after=99)))
    assert heard[-1] == {"type": "message_stop"}
