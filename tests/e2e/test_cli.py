"""`sidecarctl` against a real daemon: what it prints, what it answers its shell."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import RUN_S, Cli
from tests.support.daemon import Daemon, environment
from tests.support.processes import eventually, is_alive

HELLO = 'Create a file called hello.py that prints "Hello, World!" and run it'
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def lonely(home: Path, work: Path) -> Cli:
    """Without a daemon."""
    return Cli(home, work)


def test_json_is_what_the_control_plane_says(cli: Cli, daemon: Daemon) -> None:
    made = cli.json("session", "create", "--name", "one", "--max-turns", "7")
    assert made["name"] == "one"
    assert made["cwd"] == str(cli.cwd)
    assert cli.json("session", "ls") == daemon.call("session.list")
    shown = cli.json("session", "show", "one")
    assert shown.keys() == daemon.call("session.status", session_id="one").keys()
    assert cli.json("session", "rename", "one", "two")["name"] == "two"
    ended = cli.json("session", "destroy", made["session_id"])
    assert (ended["session_id"], ended["state"]) == (made["session_id"], "exited")
    assert cli.json("daemon", "status").keys() == daemon.call("sidecar.status").keys()


def test_a_created_session_is_named_by_what_is_printed(cli: Cli) -> None:
    session_id = cli.ok("session", "create").strip()
    for reference in (session_id, session_id[:8]):
        assert cli.json("session", "show", reference)["session_id"] == session_id
    assert cli.ok("ls", "-o", "name") == f"{session_id}\n"
    header, row = cli.ok("ls").splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "AGE", "PID", "MODEL", "CWD"]
    assert row.startswith(session_id[:8])
    assert json.loads(cli.ok("-o", "jsonl", "ls"))["session_id"] == session_id
    assert cli.ok("rm", session_id) == f"{session_id}\n"
    assert cli.ok("ls", "-o", "name") == ""
    assert cli.ok("ls", "-a", "--state", "exited", "-o", "name") == f"{session_id}\n"


def test_a_prompt_shows_words_tools_and_their_output(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    done = cli("prompt", "s", HELLO)
    assert done.returncode == 0
    assert "Hello, World!" in done.stdout
    assert "• bash: python3 hello.py\nHello, World!\n" in done.stderr
    assert "final_answer" in done.stderr
    assert (cli.cwd / "hello.py").exists()


def test_a_prompt_comes_from_arguments_or_stdin_with_options_anywhere(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    for args, text in [
        (("prompt", "s", "-"), "run `echo piped`"),
        (("prompt", "s"), "run `echo piped`"),
        (("-o", "json", "prompt", "s", "--color", "never", "run", "`echo piped`"), ""),
    ]:
        assert "piped" in cli.ok(*args, input=text)


def test_a_program_gets_the_result_or_every_event(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    assert cli.json("prompt", "s", "hello")["stop_reason"] == "final_answer"
    events = json_lines(cli.ok("prompt", "s", "hi", "-o", "jsonl"))
    assert events[-1]["type"] == "run_finished"
    assert len({event["run_id"] for event in events}) == 1
    recorded = json_lines(cli.ok("events", "s"))
    assert [event["seq"] for event in recorded] == list(range(1, len(recorded) + 1))
    since = str(events[0]["seq"] - 1)
    assert json_lines(cli.ok("events", "s", "--since", since))[: len(events)] == events


def test_a_prompt_that_nobody_awaits_prints_its_run(cli: Cli) -> None:
    session_id = cli.ok("new", "--prompt", "run `echo first`").strip()
    run_id = cli.ok("prompt", session_id, "--no-wait", "run `echo second`").strip()
    with cli.start("events", session_id, "--follow") as following:
        assert following.stdout is not None
        ends = (json.loads(line) for line in following.stdout)
        ended = [next(e["run_id"] for e in ends if e["type"] == "run_finished") for _ in range(2)]
        cli.ok("rm", session_id)
        assert following.wait(RUN_S) == 0, "following ends with the session"
    assert ended[1] == run_id


def test_run_answers_by_its_result_and_leaves_no_session(cli: Cli) -> None:
    for prompt, code in [("hello", 0), ("!refusal hello", 8), ("!max_tokens hello", 8)]:
        assert cli("run", "--name", "once", prompt).returncode == code
        assert cli.json("ls")["sessions"] == []


def test_run_destroys_its_session_also_when_it_fails(cli: Cli) -> None:
    done = cli("run", "--timeout", "2", "run `sleep 600`")
    assert done.returncode == 3
    assert cli.json("ls")["sessions"] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_session(cli: Cli, number: int, code: int) -> None:
    with cli.start("run", "run `sleep 600`") as running:
        wait_for(running, "sleep 600")
        running.send_signal(number)
        running.communicate(timeout=RUN_S)
    assert running.returncode == code
    assert cli.json("ls")["sessions"] == []


def test_ctrl_c_cancels_the_run_and_keeps_the_session(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    with cli.start("prompt", "s", "run `sleep 600`") as prompting:
        wait_for(prompting, "sleep 600")
        prompting.send_signal(signal.SIGINT)
        _, done = prompting.communicate(timeout=RUN_S)
    assert prompting.returncode == 130
    assert "cancelled" in done
    assert cli.json("session", "show", "s")["last_result"]["stop_reason"] == "cancelled"


def test_a_second_ctrl_c_leaves_at_once(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    with cli.start("prompt", "s", "run `trap '' TERM; sleep 600`") as prompting:
        wait_for(prompting, "sleep 600")
        prompting.send_signal(signal.SIGINT)
        wait_for(prompting, "again leaves")
        prompting.send_signal(signal.SIGINT)
        prompting.communicate(timeout=RUN_S)
    assert prompting.returncode == 130


def test_cancel_ends_the_run_of_somebody_else(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    with cli.start("prompt", "s", "run `sleep 600`") as prompting:
        wait_for(prompting, "sleep 600")
        cli.ok("cancel", "s")
        prompting.communicate(timeout=RUN_S)
    assert prompting.returncode == 8


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_printed_curl_line_streams_a_prompt(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    socket = cli.ok("url", "s").strip()
    assert Path(socket).is_socket()
    assert cli.json("url", "s") == {"socket": socket, "url": None, "token": None}
    bash = ["bash", "-c", cli.ok("url", "s", "--curl")]
    lines = subprocess.check_output(bash, text=True, timeout=RUN_S).split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert events[0]["type"] == "run.created"
    assert events[-1]["type"] == "run.completed"


def test_a_transcript_is_for_people_and_programs_and_outlives_its_session(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    cli.ok("prompt", "s", "run `echo kept`")
    assert "## run `echo kept`" in cli.ok("transcript", "s")
    assert cli.json("transcript", "s")["records"]
    records = json_lines(cli.ok("transcript", "s", "-o", "jsonl"))
    cli.ok("rm", "s")
    assert json_lines(cli.ok("transcript", "s", "-o", "jsonl"))[: len(records)] == records
    assert "## run `echo kept`" in cli.ok("transcript", "s")
    assert cli.json("transcript", "s")["records"][: len(records)] == records


def test_an_env_file_reaches_the_tools_but_its_key_does_not(cli: Cli) -> None:
    (cli.cwd / "vars").write_text("GREETING=from file\nOTHER=file\nMODEL_ID=my-model\n")
    made = cli.json("new", "--env-file", "vars", "--env", "GREETING=from flag", "--name", "s")
    assert made["model"] == "my-model"
    shown = cli.ok("prompt", "s", 'run `echo "<$GREETING> <$OTHER> <$MODEL_ID>"`')
    assert "<from flag> <file> <>" in shown


def test_a_system_prompt_comes_from_a_file(cli: Cli) -> None:
    (cli.cwd / "system.md").write_text("Be brief.")
    cli.ok("new", "--system", "@system.md", "--name", "s")
    assert cli("new", "--system", "@missing.md").returncode == 2


def test_all_sessions_end_only_on_a_clear_word(cli: Cli) -> None:
    for _ in range(2):
        cli.ok("new")
    refused = cli("rm", "--all")
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert len(cli.json("ls")["sessions"]) == 2
    assert len(cli.ok("rm", "--all", "--force").splitlines()) == 2
    assert cli.json("ls")["sessions"] == []


def test_destroying_several_goes_on_after_one_that_is_not_there(cli: Cli) -> None:
    session_id = cli.ok("new").strip()
    done = cli("rm", UNKNOWN, session_id)
    assert done.returncode == 4
    assert done.stdout == f"{session_id}\n"


FAILURES = [
    ("session show " + UNKNOWN, 4),
    ("prompt nobody hello", 4),
    ("cancel nobody", 4),
    ("new --name taken", 7),
    ("new --cwd /nowhere/at/all", 2),
    ("new --env-file missing", 2),
    ("new --env NOT_SET_HERE", 2),
    ("new --ring 7", 2),
    ("new --max-turns many", 2),
    ("ls --no-such-flag", 2),
    ("ls -o xml", 2),
    ("prompt taken", 2),
    ("session destroy", 2),
    ("nonsense", 2),
    ("session nonsense", 2),
    ("--timeout 0 ls", 2),
    ("--timeout 0.001 ls", 3),
    ("--socket /nowhere/sock ls", 6),
]


def test_every_failure_has_its_exit_code_and_a_next_step(cli: Cli) -> None:
    cli.ok("new", "--name", "taken")
    for args, code in FAILURES:
        failed = cli(*shlex.split(args))
        assert (failed.returncode, failed.stdout) == (code, ""), f"{args}: {failed.stderr}"
        assert failed.stderr.splitlines()[-1].startswith("try: "), args


def test_without_a_daemon_nothing_answers(lonely: Cli) -> None:
    for args in ("ls --no-start", "daemon status", "run --no-start hello"):
        failed = lonely(*args.split())
        assert (failed.returncode, failed.stdout) == (6, "")
        assert failed.stderr.splitlines()[-1] == "try: sidecarctl daemon start"


def test_a_daemon_is_started_when_needed_and_knows_no_key_of_ours(lonely: Cli) -> None:
    assert lonely.json("ls", ANTHROPIC_API_KEY="secret") == {"sessions": [], "next_cursor": None}
    pid = lonely.json("daemon", "status")["pid"]
    assert lonely.json("daemon", "start")["pid"] == pid
    if sys.platform == "linux":
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"SIDECAR_HOME" in environ
        assert b"secret" not in environ
    lonely.ok("daemon", "stop")
    eventually(lambda: not is_alive(pid), "the daemon has ended")
    assert "no daemon" in lonely("daemon", "stop").stderr


def test_a_daemon_in_the_foreground_ends_with_its_terminal(lonely: Cli) -> None:
    with lonely.start("daemon", "start", "--foreground") as daemon:
        wait_for(daemon, "listens")
        assert lonely.json("daemon", "status")["pid"] == daemon.pid
        daemon.send_signal(signal.SIGINT)
        daemon.communicate(timeout=RUN_S)
    assert daemon.returncode == 0


def test_racing_starters_end_up_with_one_daemon(lonely: Cli) -> None:
    starters = [lonely.start("daemon", "start", "-o", "json") for _ in range(4)]
    pids = {json.loads(starter.communicate(timeout=RUN_S)[0])["pid"] for starter in starters}
    assert len(pids) == 1
    assert not any(starter.returncode for starter in starters)
    lonely.ok("daemon", "stop")
    eventually(lambda: not is_alive(*pids), "the daemon has ended")


@pytest.mark.soak
def test_a_daemon_restarts_right_after_a_stop(lonely: Cli) -> None:
    for _ in range(3):
        lonely.ok("daemon", "start")
        lonely.ok("daemon", "stop")


@pytest.mark.soak
def test_sessions_outlive_a_stopped_daemon_unless_told_otherwise(lonely: Cli) -> None:
    made = lonely.json("new")
    lonely.ok("daemon", "stop")
    assert is_alive(made["pid"])
    assert lonely.json("session", "show", made["session_id"])["pid"] == made["pid"]
    lonely.ok("daemon", "stop", "--stop-sessions")
    eventually(lambda: not is_alive(made["pid"]), "the worker has ended")


def test_a_daemon_that_cannot_start_says_why(lonely: Cli) -> None:
    (lonely.home / "config.toml").write_text("spawn = 'wrong'\n")
    failed = lonely("ls")
    assert failed.returncode == 1
    assert "spawn is 'fork' or 'exec'" in failed.stderr


@pytest.mark.soak
def test_a_reader_that_has_enough_is_not_an_error(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    cli.ok("prompt", "s", "!big 200k")
    pipe = f"{shlex.join(cli.argv('events', 's'))} | head -n 1"
    done = subprocess.run(
        ["sh", "-c", pipe], env=environment(cli.home), capture_output=True, timeout=RUN_S
    )
    assert json.loads(done.stdout)["seq"] == 1
    assert done.stderr == b""


def test_listing_imports_nothing_heavy(cli: Cli) -> None:
    probe = (
        "import sys; sys.argv[1:] = ['session', 'ls']; from client.cli import main; main();"
        "print(sorted({m.split('.')[0] for m in sys.modules}))"
    )
    argv = [sys.executable, "-c", probe]
    loaded = subprocess.check_output(argv, env=environment(cli.home), text=True, timeout=RUN_S)
    heavy = {"aiohttp", "anthropic", "dotenv", "jsonschema", "mcp", "psutil", "pydantic", "rich"}
    assert not heavy & set(eval(loaded.splitlines()[-1]))


def test_what_a_terminal_would_obey_is_not_printed(cli: Cli) -> None:
    evil = cli.cwd / "\x1b]0;owned\x07\x1b[2J"
    evil.mkdir()
    cli.ok("new", "--cwd", evil, "--name", "s")
    for args in (("ls",), ("session", "show", "s")):
        assert "\x1b" not in cli.ok(*args)
    shown = cli("prompt", "s", r"run `printf '\033[2J\033]52;c;eA==\007'`")
    assert "\x1b" not in shown.stderr


def json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Until `text` shows on its stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"ended with {process.wait()} before it said {text!r}")
