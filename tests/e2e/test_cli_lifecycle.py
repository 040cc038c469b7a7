"""Sessions that end, come back and are watched, from the command line."""

from __future__ import annotations

from tests.support.cli import Cli


def test_a_destroyed_session_is_resumed_and_shown_at_the_top(cli: Cli) -> None:
    cli.ok("new", "--name", "s")
    cli.ok("rm", "s")
    assert cli.json("session", "resume", "s")["state"] == "idle"
    lines = cli.ok("top").splitlines()
    assert lines[0].split()[:3] == ["ID", "NAME", "STATE"]
    assert lines[1].split()[1:4] == ["s", "idle", "2"]
    assert cli.json("top")["sessions"][0]["resources"]["processes"] == 2
    cli.ok("rm", "s")


def test_limits_and_sleep_are_asked_for_by_flags(cli: Cli) -> None:
    flags = ("--mem-limit", "512", "--max-processes", "40", "--cpu-limit", "60")
    made = cli.json("new", *flags, "--idle-timeout", "0")
    assert made["limits"] == {"memory_bytes": 512 << 20, "processes": 40, "cpu_s": 60.0}
    refused = cli("new", "--mem-limit", "1")
    assert refused.returncode != 0
    assert "memory_bytes" in refused.stderr
    cli.ok("rm", made["session_id"])
