"""Every command of `sidecarctl`."""

from client.cli import (
    acp,
    daemon,
    install,
    mcp,
    permissions,
    prompts,
    reading,
    sessions,
    tokens,
    top,
    trust,
)

COMMANDS = {
    **sessions.COMMANDS,
    **prompts.COMMANDS,
    **permissions.COMMANDS,
    **trust.COMMANDS,
    **mcp.COMMANDS,
    **reading.COMMANDS,
    **tokens.COMMANDS,
    **daemon.COMMANDS,
    **top.COMMANDS,
    **install.COMMANDS,
    **acp.COMMANDS,
}
ALIASES = {
    "ls": "session ls",
    "ps": "session ls",
    "new": "session create",
    "rm": "session destroy",
    "kill": "session destroy",
}
