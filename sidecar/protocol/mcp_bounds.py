"""The bounds of MCP servers: name, value, reason. Apart from `bounds`, which is long enough."""

from sidecar.protocol.bounds import KIB, MIB

MCP_READY_S = 3.0
"""The first prompt waits that long for servers that are still starting: tools that are there from
the start keep the prompt cache whole (tools-and-ux.md §6)."""
MCP_START_TRIES = 3
"""Of a server that was never there; one that was is tried for as long as the session lives."""
MCP_PAUSE_FIRST_S = 1.0
"""Before the first new try; it doubles (tools-and-ux.md §6)."""
MCP_PAUSE_MAX_S = 60.0
MCP_STEADY_S = 60.0
"""A server that was there for so long has earned a quick restart again."""
MCP_CLOSE_S = 3.0
"""For a connection to be closed: two graces of a stdio server, one answer of an HTTP server. With
it a worker that stops stays within the grace of its session."""
MCP_RELIST_S = 1.0
"""At least between two lists: a server may say that they change as often as it likes."""
MCP_STARTUP_S = 15.0
"""Connecting and listing, unless configured: a Python server imports for a second, `npx` looks at
its cache for five."""
MCP_CALL_S = 120.0
"""A call without a word of progress, unless configured; as long as a command has."""
MCP_CALL_MAX_S = 600.0
"""A call with all its progress, and the longest time that may be configured."""
MCP_NAME_CHARS = 64
"""Of a server's name: it is part of every name of its tools."""
MCP_LIST_S = 10.0
"""All pages of a list of tools (tools-and-ux.md §6)."""
MCP_LIST_PAGES = 100
"""Of one list: a server that always has one more is no list."""
MCP_RELISTEN_S = 5.0
"""Before a stream of changes that broke off is asked for again."""
MCP_PROGRESS_CHARS = 1_000
"""Of one word of progress."""
MCP_CONNECT_S = 10.0
"""To reach an HTTP server, and to hand it a request."""
MCP_SIGN_IN_S = 600.0
"""For a person to sign in; then the server counts as failed until it is restarted."""
MCP_SIGN_IN_REQUEST_S = 10.0
"""For the browser to send its one request line."""
MCP_READ_BYTES = 256 * KIB
"""Taken at once from a server's output."""
MCP_LAST_WORDS_S = 0.5
"""Between the end of a server and the end of its output: what it said last is in the pipe."""
MCP_CLOSE_GRACE_S = 1.0
"""From the end of a stdio server's input to SIGTERM, and from there to SIGKILL: with both a worker
that stops stays within its own grace."""
MCP_EXIT_LOOK_S = 3600.0
"""One wait for a server's exit; then the next."""
MCP_LINE_BYTES = 32 * MIB
"""Longest message of a server: as long as the longest request to a model."""
MCP_LINE_END_BYTES = 4 * KIB
"""Kept of both ends of a longer one: one of them has its id."""
MCP_STDERR_BYTES = 64 * KIB
"""Of a server's stderr in memory: it explains an end, it is no log."""
MCP_STDERR_LINES = 8
"""With the reason why a server is not there; the model reads it."""
MCP_STDERR_LINE_CHARS = 400
"""Of one of them."""
MCP_FILE_BYTES = 256 * KIB
"""Of a `.mcp.json`: hundreds of servers."""
MCP_DESCRIPTION_CHARS = 8_000
"""Of one tool: it is sent with every request."""
MCP_TITLE_CHARS = 200
"""Of one tool, as people see it in questions."""
MCP_TOOLS = 500
"""Of one server: more would leave no room for a conversation."""
MCP_SCHEMA_BYTES = 64 * KIB
"""Of one tool's schema, as JSON: it is sent with every request."""
MCP_MISFITS_TOLD = 5
"""Reasons why an input does not fit its schema."""
MCP_TEXT_CHARS = 100_000
"""Text of one result; what is longer goes to a file (tools-and-ux.md §6)."""
MCP_TEXT_CHARS_MAX = 500_000
"""What a server may raise that to."""
MCP_PREVIEW_CHARS = 2_000
"""Of a text in a file: enough to see what it is."""
MCP_IMAGE_BASE64_BYTES = 5 * MIB
"""Of an image that the model sees (tools-and-ux.md §6): a larger one goes to a file."""
MCP_NAMED_CHARS = 1_000
"""Of names and addresses that a server made up."""
