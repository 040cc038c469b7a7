"""What model calls hold, cost and go through, from the command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

from session_worker.demo_model import Answer, ApiError, Reply, text, tool_use
from tests.support.cli import RUN_S, Cli
from tests.support.daemon import Daemon, environment
from tests.support.endpoint import Endpoint
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import eventually

PRICED = "claude-haiku-4-5"
WAIT = tool_use("bash", {"command": "touch up; until [ -e go ]; do sleep 0.05; done"})


def of_server(model: ModelServer) -> tuple[str, ...]:
    """Flags of a session that talks to it."""
    env = ("--env", f"ANTHROPIC_BASE_URL={model.base_url}", "--env", "ANTHROPIC_API_KEY=k")
    return ("--name", "s", *env)


@pytest.mark.parametrize(
    "fault",
    [
        "!cut 1",
        *(pytest.param(f, marks=pytest.mark.soak) for f in ("!overloaded 1", "!429 retry-after=0")),
    ],
)
def test_an_answer_that_took_two_attempts_is_said_once(cli: Cli, fault: str) -> None:
    cli.ok("new", "--name", "s")
    done = cli("prompt", "s", f"{fault} hello")
    assert done.returncode == 0
    assert done.stdout.strip() == cli.json("session", "show", "s")["last_result"]["final_text"]
    assert done.stderr.count("retrying (") == 1


def test_on_a_terminal_the_line_about_a_retry_takes_back_what_was_seen(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    shown = on_terminal(cli, "prompt", "s", "!cut 1 hello")
    cut, retry, whole = shown.splitlines()[:3]
    assert "does not count" in retry
    assert whole.startswith(cut)
    assert whole == cli.json("session", "show", "s")["last_result"]["final_text"]


def test_the_context_is_a_table_or_what_the_route_says(cli: Cli, daemon: Daemon) -> None:
    made = cli.json("new", "--name", "s")
    cli.ok("prompt", "s", "!cut 1 run `echo hi`")
    said = Endpoint(made).get(f"/sessions/{made['session_id']}/context")[1]
    assert cli.json("context", made["session_id"][:8]) == said
    header, row = cli.ok("context", "s").splitlines()
    assert header.split()[:4] == ["MODEL", "CONTEXT", "WINDOW", "USED"]
    total, window, used, *_, calls, cost = row.split()[1:]
    assert (total, window) == (f"{said['context_tokens']:,}", f"{said['context_window']:,}")
    assert (used, calls, cost) == ("1%", "3", "-"), "the demo model has no price"
    per_call = cli.ok("context", "s", "--per-call").splitlines()[3:]
    assert [line.split()[-1] for line in per_call[1:]] == ["discarded", "tool_use", "end_turn"]
    assert len({len(line.split()) for line in per_call}) == 1


def test_usage_is_of_one_session_or_of_all_and_wakes_none(cli: Cli, daemon: Daemon) -> None:
    cli.ok("new", "--name", "ended")
    cli.ok("rm", "ended")
    session_id = cli.ok("new", "--name", "s", "--idle-timeout", "0.2", "--prompt", "hello").strip()

    def state() -> str:
        return daemon.call("session.status", session_id=session_id)["state"]

    eventually(lambda: state() == "sleeping", "the session sleeps")
    one = cli.json("usage", "s")
    assert one["usage"]["output_tokens"] > 0
    assert cli.json("usage") == {"sessions": [one]}
    header, row = cli.ok("usage").splitlines()
    assert (header.split()[0], row.split()[:3]) == ("ID", [session_id[:8], "s", "sleeping"])
    assert f" {one['usage']['output_tokens']} " in row
    assert [line.split()[1] for line in cli.ok("usage", "-a").splitlines()[1:]] == ["s", "ended"]
    assert state() == "sleeping"


def test_a_known_price_is_shown_and_a_budget_of_it_kept(cli: Cli) -> None:
    with model_server([Reply([text("one")])]) as model:
        cli.ok("new", *of_server(model), "--model", PRICED, "--max-cost", "0.000001")
        cli.ok("prompt", "s", "go")
        for command in ("usage", "context"):
            assert " $0.0" in cli.ok(command, "s")
        refused = cli("prompt", "s", "more")
    assert refused.returncode == 8
    assert "budget: the session has cost" in refused.stderr


def test_a_budget_of_tokens_ends_a_run_and_is_told_with_the_session(cli: Cli) -> None:
    made = cli.json("new", "--name", "s", "--max-total-tokens", "10", "--max-cost", "2.5")
    assert made["limits"] == {"tokens": 10, "cost_usd": 2.5}
    cut = cli("run", "--max-total-tokens", "10", "run `echo hi`")
    assert cut.returncode == 8
    assert "of the 10 tokens" in cut.stderr


@pytest.mark.soak
def test_compaction_says_what_it_did_or_why_not(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    failed = cli("compact", "s")
    assert (failed.returncode, failed.stdout) == (8, "")
    assert failed.stderr.startswith("compaction_failed: ")
    for prompt in ("!big 20k", "hello", "hello"):
        cli.ok("prompt", "s", prompt)
    before = cli.json("usage", "s")["usage"]["context_tokens"]
    assert cli.ok("compact", "s", "--focus", "greetings").startswith("Compacted: ")
    assert cli.json("usage", "s")["usage"]["context_tokens"] < before
    assert cli.json("context", "s")["calls"][-1]["stop_reason"] == "compaction"
    again = cli("compact", "s", "-o", "json")
    assert again.returncode == 8
    assert '"compaction_failed"' in again.stdout


def test_a_steering_prompt_goes_along_with_the_run_under_way(cli: Cli) -> None:
    with model_server([Reply([WAIT]), Reply([text("As you like.")])]) as model:
        made = cli.json("new", *of_server(model))
        transcript = f"/sessions/{made['session_id']}/transcript"
        endpoint = Endpoint(made)
        with cli.start("prompt", "s", "go") as first:
            eventually((cli.cwd / "up").exists, "the tool runs")
            run_id = cli.ok("prompt", "s", "--steer", "--no-wait", "use tabs").strip()
            with cli.start("prompt", "s", "--steer", "and be brief") as second:
                eventually(
                    lambda: "and be brief" in str(endpoint.get(transcript)), "both are accepted"
                )
                (cli.cwd / "go").touch()
                told, _ = second.communicate(timeout=RUN_S)
            said, _ = first.communicate(timeout=RUN_S)
        assert (first.returncode, second.returncode) == (0, 0)
        assert said == told == "As you like.\n"
        assert endpoint.get(f"/runs/{run_id}")[1]["output"] != []
        asked = model.requests[1].body["messages"][-1]["content"]
    assert [b["text"] for b in asked if b["type"] == "text"] == ["use tabs", "and be brief"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([Reply([tool_use("bash", {"command": "true"})])] * 10, "loop_detected"),
        ([ApiError(400, "prompt is too long: 9 tokens > 8 maximum")], "context_limit"),
    ],
)
def test_a_run_that_ends_badly_says_why_by_its_exit_code(
    cli: Cli, script: Sequence[Answer], reason: str
) -> None:
    with model_server(script) as model:
        done = cli("run", *of_server(model), "go")
    assert done.returncode == 8
    assert reason in done.stderr.splitlines()[-1]


FAILURES = [
    ("context nobody", 4),
    ("usage nobody", 4),
    ("compact nobody", 4),
    ("context", 2),
    ("compact", 2),
    ("usage s t", 2),
    ("context s -o name", 2),
    (f"compact s --focus {'x' * 5000}", 2),
    ("new --max-cost -1", 2),
    ("new --max-cost nan", 2),
    ("new --max-cost much", 2),
    ("new --max-total-tokens 0", 2),
    ("new --max-total-tokens 1.5", 2),
    ("prompt s --steer", 2),
]


def test_bad_input_has_its_exit_code_and_a_next_step(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    for args, code in FAILURES:
        failed = cli(*args.split())
        assert (failed.returncode, failed.stdout) == (code, ""), f"{args}: {failed.stderr}"
        assert failed.stderr.splitlines()[-1].startswith("try: "), args


def on_terminal(cli: Cli, *args: str) -> str:
    """What a person sees of both streams."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        cli.argv(*args),
        env=environment(cli.home, NO_COLOR="1"),
        cwd=cli.cwd,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with process, os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while chunk := terminal.read(4096):
                seen += chunk
        except OSError:
            pass  # how Linux tells that the last of the others has left
        assert process.wait(RUN_S) == 0
    return seen.decode().replace("\r\n", "\n")
