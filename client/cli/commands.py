"""Every command of `sidecarctl`."""

from client.cli import daemon, install, prompts, reading, sessions, tokens, top

COMMANDS = {
    **sessions.COMMANDS,
    **prompts.COMMANDS,
    **reading.COMMANDS,
    **tokens.COMMANDS,
    **daemon.COMMANDS,
    **top.COMMANDS,
    **install.COMMANDS,
}
ALIASES = {
    "ls": "session ls",
    "ps": "session ls",
    "new": "session create",
    "rm": "session destroy",
    "kill": "session destroy",
}
