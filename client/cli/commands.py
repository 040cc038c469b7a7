"""Every command of `sidecarctl`."""

from client.cli import daemon, prompts, reading, sessions

COMMANDS = {**sessions.COMMANDS, **prompts.COMMANDS, **reading.COMMANDS, **daemon.COMMANDS}
ALIASES = {
    "ls": "session ls",
    "ps": "session ls",
    "new": "session create",
    "rm": "session destroy",
    "kill": "session destroy",
}
