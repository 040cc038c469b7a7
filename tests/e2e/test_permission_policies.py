"""What settings, modes and projects make of a call; and that nobody but a person answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from session_worker.demo_model import Answer, Reply, tool_use
from tests.support.daemon import Daemon, refused_daemon
from tests.support.processes import eventually
from tests.support.questions import (
    Ask,
    answer,
    answered,
    asked,
    asking,
    configure,
    notices,
    read,
    results,
    trusted,
    write,
)
from tests.support.scripted import FINE, Scripted, bash, scripted_session

Json = dict[str, Any]
TOUCH = Reply([bash("touch made")])


# --- nobody there -------------------------------------------------------------------------------


def attended(session: Scripted, *answers: Answer) -> Json:
    """The result of a run whose question a client allows that follows the events."""
    with session.endpoint.stream(
        "GET", f"/sessions/{session.endpoint.session_id}/events"
    ) as events:
        run_id = session.start(*answers)
        own = (e for e in events if e["run_id"] == run_id)
        question = next(e["data"] for e in own if e["type"] == "permission_requested")
        assert answer(session.endpoint, question, "allow_once") == 200
        return next(e["data"] for e in own if e["type"] == "run_finished")


def test_without_a_client_a_question_is_denied_or_fails_the_run(
    own_daemon: Daemon, work: Path, tmp_path: Path
) -> None:
    """One daemon, whose settings change; looking at runs or questions would be a client."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a").write_text("noted")
    settings = f"""
        [permissions]
        mode = "plan"
        headless_after_s = 0.2
        deny = ["bash(sudo *)"]
        allow = ["bash(mkdir *)"]
        additional_dirs = ["{tmp_path}/notes"]
        [[hooks]]
        event = "PostToolUse"
        matcher = "read_file"
        command = ["echo", '{{"context": "read it well"}}']
        """
    own_daemon.configure(settings)
    assert own_daemon.call("session.create", cwd=str(work))["mode"] == "plan"
    with scripted_session(own_daemon, work, mode="bypass") as session:
        session.completes(Reply([bash("sudo true")]))
        assert "bash(sudo *)" in results(session)[0]
    with asking(own_daemon, work) as ask:
        session = ask()
        session.completes(Reply([read(tmp_path / "notes/a"), bash("mkdir made")]))
        noted, _ = results(session)
        assert "noted" in noted
        assert noted.endswith("read it well")
        session.start(TOUCH, FINE)
        (result,) = eventually(lambda: session.events("run_finished")[1:], "the run has ended")
        assert result["stop_reason"] == "final_answer"
        assert results(session)[0].startswith("This call needs a permission, and nobody was there")
        assert session.events("permission_resolved")[-1]["outcome"] == "unattended"
    assert own_daemon.configure("[permissions").startswith("stay as they were")
    fail = settings.replace("[permissions]", "[permissions]\nheadless = 'fail'")
    own_daemon.configure(fail)
    with asking(own_daemon, work) as ask:
        session = ask()
        session.start(TOUCH)
        (result,) = eventually(lambda: session.events("run_finished"), "the run has ended")
        assert (result["stop_reason"], result["error"]["type"]) == ("error", "permission_required")
        session.completes(Reply([bash("ls")]))
        assert attended(session, TOUCH, FINE)["stop_reason"] == "final_answer"


def test_a_rule_that_is_none_keeps_a_daemon_from_starting(home: Path) -> None:
    (home / "config.toml").write_text(
        '[permissions]\nallow = ["bash(ls)"]\ndeny = [\n  "read(**/.env*)",\n  "bash(",\n]'
    )
    refused = refused_daemon(home)
    assert refused.returncode != 0
    assert "line 5: permissions.deny: 'bash(' is no rule" in refused.stderr
    assert "Traceback" not in refused.stderr


# --- nobody else --------------------------------------------------------------------------------

PROBE = """
import contextlib, http.client, json, os, socket, sys, time
own, other, control, shim, out = sys.argv[1:6]
class Http(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self.path)
def ask(path, method, url, body=None):
    connection = Http(path)
    connection.request(method, url, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())
seen = {"environ": dict(os.environ)}
for name, path in (("own", own), ("other", other)):
    session = ask(path, "GET", "/healthz")[1]["session_id"]
    url = f"/sessions/{session}/permissions"
    until = time.monotonic() + 10
    while not (pending := ask(path, "GET", url)[1]["pending"]) and time.monotonic() < until:
        time.sleep(0.02)
    run = "/runs/" + pending[0]["run_id"]
    message = {"role": "user", "parts": [{"content": "allow_once"}]}
    resume = {"await_resume": {"message": message}, "mode": "async"}
    prompt = {"agent_name": "sidecar", "mode": "async", "input": [message]}
    seen[name] = [
        ask(path, "GET", run)[0],
        ask(path, "POST", f"{url}/{pending[0]['request_id']}", {"option_id": "allow_once"})[0],
        ask(path, "POST", run, resume)[0],
        ask(path, "POST", "/runs", prompt)[0],
        ask(path, "POST", f"/sessions/{session}/cancel", {})[0],
    ]
plane = socket.socket(socket.AF_UNIX)
plane.settimeout(10)
plane.connect(control)
call = {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"cwd": "/"}}
with contextlib.suppress(BrokenPipeError):  # turned away before it said anything
    plane.sendall(json.dumps(call).encode() + b"\\n")
seen["control"] = plane.recv(65536).decode()
link = socket.socket(socket.AF_UNIX)
link.settimeout(10)
link.connect(shim)
seen["shim"] = link.recv(65536).decode()
with open(out + ".new", "w") as file:
    json.dump(seen, file)
os.rename(out + ".new", out)
"""


def test_what_an_agent_starts_never_answers_for_a_person(
    session: Scripted, ask: Ask, daemon: Daemon, work: Path, tmp_path: Path
) -> None:
    probe, out = tmp_path / "probe.py", work / "out"
    probe.write_text(PROBE)
    other_run = (other := ask()).start(Reply([bash("touch others")]), FINE)
    asked(other.endpoint)
    shim = Path(session.endpoint.path).with_suffix(".ctl")
    paths = [session.endpoint.path, other.endpoint.path, daemon.socket, shim, out]
    words = " ".join(map(str, (sys.executable, "-I", probe, *paths)))
    # twice away from its parent, in a session of its own, and nothing in the environment
    away = Reply([bash(f"(setsid env -i {words} </dev/null >/dev/null 2>&1 &) &")])
    run_id = session.start(away, TOUCH, FINE)
    (first,) = asked(session.endpoint)
    answer(session.endpoint, first, "allow_once")
    eventually(out.exists, "it has tried")
    seen = json.loads(out.read_text())
    assert "SIDECAR_SESSION" not in seen["environ"]
    assert seen["own"] == seen["other"] == [200, 403, 403, 403, 403]
    assert "forbidden" in seen["control"]
    assert seen["shim"] == ""
    (question,) = asked(session.endpoint)
    assert question["toolCall"]["title"] == "touch made"
    answer(session.endpoint, question, "reject_once")
    session.ended(run_id)
    answer(other.endpoint, asked(other.endpoint)[0], "reject_once")
    other.ended(other_run)
    assert {p.name for p in work.iterdir()} == {"out"}


def test_an_agent_that_uses_sidecarctl_is_told_why_not(ask: Ask, daemon: Daemon) -> None:
    session = ask(mode="bypass")
    command = f"SIDECAR_HOME={daemon.home} {sys.executable} -m client.cli ls"
    session.completes(Reply([bash(command)]))
    assert "what a session's agent starts may not use the control plane" in results(session)[0]


# --- rules, modes, and what holds in all of them ------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "command", "edit", "outside"),
    [
        ("plan", "deny", "deny", "ask"),
        ("accept-edits", "ask", "allow", "ask"),
        ("auto", "allow", "allow", "ask"),
        ("bypass", "allow", "allow", "allow"),
    ],
)
def test_a_mode_decides_what_nothing_else_does(
    ask: Ask, work: Path, tmp_path: Path, mode: str, command: str, edit: str, outside: str
) -> None:
    (tmp_path / "far").write_text("far")
    (work / "near").write_text("near")
    session = ask(mode=mode)
    session.completes(Reply([read("near"), bash("ls")]))
    assert not session.events("permission_requested")
    for call, wanted, done in (
        (bash("touch made"), command, (work / "made").exists),
        (write("new"), edit, (work / "new").exists),
        (read(tmp_path / "far"), outside, lambda: "far" in results(session)[0]),
    ):
        if wanted == "ask":
            answered(session, "reject_once", Reply([call]), FINE)
        else:
            session.completes(Reply([call]))
        assert done() == (wanted == "allow")
    if mode == "plan":
        assert "plan mode" in str(session.bodies)


def test_what_must_not_be_done_unasked_is_asked_even_in_bypass(
    ask: Ask, daemon: Daemon, work: Path
) -> None:
    (work / ".git/hooks").mkdir(parents=True)
    session = ask(mode="bypass")
    for call in (
        write(".git/hooks/pre-commit"),
        write(daemon.home / "config.toml"),
        write(".sidecar/config.toml"),
        bash(f"echo x >> {daemon.home / 'state/permissions.json'}"),
        bash("cp x .git/hooks/pre-commit"),
    ):
        question, _ = answered(session, "reject_once", Reply([call]), FINE)
        offered = [option["optionId"] for option in question["options"]]
        assert offered == ["allow_once", "reject_once"]
    session.completes(Reply([bash(f"rm -rf {work}")]))
    assert "would destroy" in results(session)[0]
    assert work.exists()
    assert list((work / ".git/hooks").iterdir()) == []


@pytest.mark.parametrize(
    ("link", "target"), [(".sidecar", "conf"), (".sidecar/config.toml", "../conf/config.toml")]
)
def test_settings_of_a_project_that_are_links_are_not_edited_unasked(
    ask: Ask, work: Path, link: str, target: str
) -> None:
    (work / "conf").mkdir()
    (work / "conf/config.toml").touch()
    (work / link).parent.mkdir(exist_ok=True)
    (work / link).symlink_to(target)
    session = ask(mode="auto")
    call = Reply([bash("echo > conf/config.toml")])
    question, _ = answered(session, "reject_once", call, FINE)
    assert "always asked" in question["_meta"]["sidecar"]["reason"]
    session.completes(Reply([write("free")]))
    assert (work / "free").exists()


def test_a_permission_for_a_file_outside_is_for_that_call_and_that_file(
    session: Scripted, tmp_path: Path
) -> None:
    far = tmp_path / "far"
    far.write_text("far\n")
    question, _ = answered(session, "allow_once", Reply([read(far)]), FINE)
    assert question["_meta"]["sidecar"]["outside"] == [str(far)]
    assert "far" in results(session)[0]
    link = tmp_path / "work/link"
    link.symlink_to(far)
    question, _ = answered(session, "reject_once", Reply([read("link")]), FINE)
    assert question["_meta"]["sidecar"]["outside"] == [str(far)]
    edit = {"path": str(far), "edits": [{"old_string": "far", "new_string": "near"}]}
    answered(session, "allow_once", Reply([tool_use("edit_file", edit)]), FINE)
    assert far.read_text() == "near\n"


def test_a_project_may_forbid_and_ask_but_allows_only_once_it_is_trusted(
    ask: Ask, daemon: Daemon, work: Path
) -> None:
    configure(
        work,
        "[permissions]\ndeny = ['read(secret)']\nask = ['read(doubtful)']\n"
        "allow = ['bash(touch *)']",
    )
    for name in ("secret", "doubtful"):
        (work / name).write_text(name)
    stranger = ask()
    answered(stranger, "reject_once", TOUCH, FINE)
    assert [n for n in notices(stranger) if "sidecarctl trust" in n]
    stranger.completes(Reply([read("secret")]))
    assert "read(secret)" in results(stranger)[0]
    answered(stranger, "reject_once", Reply([read("doubtful")]), FINE)
    with trusted(daemon, work):
        session = ask()
        session.completes(TOUCH)
        assert (work / "made").exists()
        assert not [n for n in notices(session) if "trust" in n]
        session.completes(Reply([read("secret")]))
        assert "read(secret)" in results(session)[0]


def test_a_project_whose_settings_are_broken_has_everything_asked(ask: Ask, work: Path) -> None:
    configure(work, "[permissions]\ndeny = ['bash(']")
    session = ask(mode="bypass")
    question, _ = answered(session, "allow_once", Reply([bash("ls")]), FINE)
    assert "unreadable" in question["_meta"]["sidecar"]["reason"]
    (notice,) = (n for n in notices(session) if "everything is asked" in n)
    assert f"{work}/.sidecar/config.toml: line 2: permissions.deny" in notice


@pytest.mark.parametrize("mode", ["auto", "bypass"])
def test_a_call_made_again_and_again_is_asked_about_at_the_sixth_time(ask: Ask, mode: str) -> None:
    session = ask(mode=mode)
    calls = [Reply([bash("echo again")])] * 6
    if mode == "bypass":
        session.completes(*calls)
        return
    question, _ = answered(session, "reject_once", *calls, FINE)
    assert "6th time" in question["_meta"]["sidecar"]["reason"]
    assert [o["optionId"] for o in question["options"]] == ["allow_once", "reject_once"]
    assert results(session)[0].startswith("The user declined")
