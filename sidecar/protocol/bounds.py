"""Every bound of the project: name, value, reason. Seconds end in `_S`, sizes in `_BYTES`.

A bare number next to a wait, a buffer or a count anywhere else is a defect.
"""

KIB = 1024
MIB = 1024 * KIB

# --- control plane -------------------------------------------------------------------------
CONTROL_LINE_BYTES = 8 * MIB
"""Longest JSON-RPC line either way; a longer one is answered and the connection closed."""
CONTROL_PENDING_REQUESTS = 64
"""Requests of one connection that may be under way at once; further ones wait unread."""
CONTROL_CONNECTIONS = 256
"""Open control connections; one more is told `overloaded` and closed."""
CONTROL_WRITE_S = 10.0
"""A control client that does not take its bytes for this long is dropped, never waited for."""
CONTROL_BACKLOG = 128
"""Clients that may queue on the control socket before one is accepted."""
NOTIFY_BACKLOG_BYTES = 256 * KIB
"""Unread bytes past which a client misses `session.changed` hints; the next one repeats all."""
SUBSCRIPTIONS_PER_CONNECTION = 64
"""Event subscriptions one connection may hold: each costs a mapped ring and a task."""
OUTPUT_WAIT_MAX_S = 60.0
"""Longest `session.output` long poll (design §4)."""
OUTPUT_LIMIT_MAX = 10_000
"""Most events one `session.output` answers with."""
OUTPUT_REPLY_BYTES = 6 * MIB
"""Event bytes one `session.output` answers with: a reply must fit the control line."""
RING_POLL_S = 0.03
"""How often the daemon looks at a ring somebody follows (supervision.md §c: 20-50 ms)."""
RING_READ_BATCH = 256
"""Records one step of a follower copies before the loop gets its turn."""

# --- starting and ending sessions ----------------------------------------------------------
MAX_SESSIONS = 256
"""Live sessions of one daemon: far below the fd and pid limits of a desktop."""
SESSION_START_S = 30.0
"""Fork request to first good /healthz: an exec'd worker imports for 2-4 s."""
ZYGOTE_READY_S = 60.0
"""Until a zygote or a spare has imported everything: cold disks take tens of seconds."""
ZYGOTE_RESTART_S = 1.0
"""Pause before a dead zygote is started again, so that a broken one cannot spin."""
HEALTH_S = 10.0
"""One /healthz answer; the worker has just said that it is up."""
FORK_REPLY_S = 5.0
"""A zygote answers a fork request in milliseconds; after this it counts as hung."""
SHIM_REPLY_S = 5.0
"""A shim is one select loop; it answers at once or is broken."""
SHIM_LINE_BYTES = 16 * MIB
"""Longest line on a shim link: the specification carries `env` and `system` of a control line."""
ADOPT_S = 5.0
"""Budget to reach one shim when the daemon starts; a shim that is slower is asked again later."""
DESTROY_GRACE_DEFAULT_S = 5.0
"""SIGTERM to SIGKILL of a worker (design §4)."""
DESTROY_GRACE_MAX_S = 300.0
KILL_TREE_S = 10.0
"""Freeze-and-kill ends in about 20 ms; what lasts longer is in state D and is reported."""
KILL_TREE_PAUSE_S = 0.001
"""Between two rounds, for the kernel to deliver the signals."""
FREEZE_ROUNDS = 50
"""Scans until the set of stopped processes is stable; a fork loop settles in 2-3."""
CLEAN_SCANS = 5
"""Scans in a row that must find no orphan: one alone misses a process that lives for 2 ms."""
FILES_CHECK_S = 30.0
"""How often a shim looks whether its session's directory is still there, and the daemon for its
socket: without them nobody can reach what runs."""
DAEMON_EXIT_S = 10.0
"""A stopping daemon ends its tasks within this, then leaves anyway: sessions do not need it."""
CONNECT_S = 5.0
"""Connecting to a Unix socket of ours on this machine."""
DAEMON_START_S = 15.0
"""`sidecarctl` waits this long for a daemon it started to answer `sidecar.ping`."""
DAEMON_LOG_BYTES = 4 * MIB
"""daemon.log before it is rotated: weeks of a daemon that writes a line per incident."""
DAEMON_LOGS_KEPT = 2
"""Rotated ones beside it, so that the start of a trouble is still there at its end."""
NOTIFY_S = 1.0
"""A service manager takes our datagram at once; a hung one must not hang us."""
WORKER_LOG_BYTES = 4 * MIB
"""worker.log before it becomes worker.log.1: what a library or an MCP server may print there."""
LOG_TAIL_BYTES = 4 * KIB
"""End of worker.log shown in `start_failed`."""

LIMIT_WATCH_S = 1.0
"""Between two looks of a shim at its tree: 3 ms of CPU for 50 processes (docs/limits.md)."""
LIMIT_EXEC_S = 1.0
"""A process younger than this may be about to execute; on a busy machine that takes a while."""
LIMIT_DATA_FACTOR = 4
"""Of memory_bytes is what one process may map: thread stacks and arenas that an innocent program
never touches count here, so that the watch, which has a name for it, comes first."""
LIMIT_TASKS_FACTOR = 16
"""Threads that a control group may have for each process allowed: the kernel counts threads, and a
Node.js has a dozen; the watch, which counts processes, comes first."""
LIMIT_MEMORY_MIN_BYTES = 128 * MIB
"""Least memory_bytes: a worker that was not forked is 90 MB of its own, alone and idle."""
ADMISSION_RESERVE_BYTES = 256 * MIB
"""Left to everybody else when a session is admitted: below this, desktops start to thrash."""
ADMISSION_SESSION_BYTES = 64 * MIB
"""What a new session is taken to need: 17 MB forked, shim included, and its first command."""
RESTART_FIRST_S = 0.05
"""Pause after the first crash of a worker; it doubles with each further one."""
RESTART_MAX_S = 30.0
RESTART_WINDOW_S = 300.0
"""Crashes older than this are forgiven."""
RESTART_CRASHES_MAX = 6
"""As many crashes within the window end the session: something is broken for good."""
IDLE_TICK_S = 1.0
"""How often a worker looks whether it is idle. Ticks are counted, not clocks compared: a worker
that was stopped for two minutes has not been idle for two minutes."""
HTTP_KEEPALIVE_S = 15.0
"""An open connection keeps a worker awake, so those that ask nothing are closed after this."""
SHIM_RETRY_S = 1.0
"""Before a lost link to a living shim is made again."""
ENDPOINT_BACKLOG = 128
"""Clients that may queue on a session's endpoint while its worker starts."""
SHIM_BACKLOG = 8
"""Daemons that may queue on a shim's control socket: one, or two during a take-over."""
PROCESS_POLL_S = 0.05
"""How often a process is looked at where nothing tells: no pidfd (macOS), a fork of another's."""

# --- ring ----------------------------------------------------------------------------------
RING_DEFAULT_BYTES = 4 * MIB
RING_MIN_BYTES = 64 * KIB
RING_MAX_BYTES = 256 * MIB
RING_READ_RETRIES = 100
"""CRC misses of one record before the reader reports corruption; a race lasts a microsecond."""

# --- data plane ----------------------------------------------------------------------------
PROMPT_QUEUE = 8
"""Prompts that may wait behind a run; the next is refused (design §5)."""
HTTP_BODY_BYTES = 16 * MIB
"""Largest request body of a session endpoint."""
SSE_KEEPALIVE_S = 15.0
"""Comment line on a silent event stream, so that proxies and clients see it is alive."""
SSE_WRITE_S = 10.0
"""A stream whose client takes nothing for this long is closed; it comes back with its cursor."""
SSE_BUFFER_BYTES = 256 * KIB
"""Bytes of one stream in our memory before writing waits."""
RUNS_KEPT = 200
"""Finished runs a worker answers `GET /runs/{id}` for; older ones are in the transcript."""
SESSION_ALIASES = 16
"""Names that ACP-R clients may make up for one session."""
ATTENDANCE_TICK_S = 1.0
"""How often a question that waits looks whether anybody is there."""
HEADLESS_AFTER_S = 60.0
"""Without a client for so long, a question is answered by `permissions.headless`: long enough for
a client that reconnects or polls, short enough for a script that nobody watches."""
PERMISSION_REASON_CHARS = 4_000
"""Longest reason a person gives for an answer: the model reads it."""
CANCEL_S = 15.0
"""A cancelled run is gone after the tools' own kill grace; past this the cancel is an error."""
WORKER_STOP_S = 4.0
"""A worker told to stop ends its run, flushes and leaves within the default grace."""

MCP_BEHIND_S = 0.1
"""From a worker's start to that of its MCP servers: a create is answered in less, and importing
what talks to them would hold it up (benchmarks/bench_mcp.py)."""

LAST_ANSWERS_S = 1.0
"""Clients of a worker that leaves take the end of their streams within this, or miss it."""

CLIENT_CALL_S = 10.0
"""A client answers what a tool asks of it within this: it has the file in memory. A read and a
write of one call fit into what a file tool may take."""
CLIENT_SETTLE_S = 1.0
"""Given to a write that is cancelled, so that it is known whether the client has done it."""
CLIENT_FILE_BYTES = 4 * MIB
"""Of a file whose text is asked of a client: few editors open larger ones, and as JSON it must stay
below HTTP_BODY_BYTES."""
CLIENT_ERROR_CHARS = 300
"""Of a client's error in a notice or a result: a sentence or two say what is wrong."""
FEED_MESSAGES_KEPT = 32
"""Answers and requests of one feed that are there for a client which comes back: what it may have
missed while its connection broke."""
FEED_LOOKED_BACK = 1000
"""Events before a cursor from which it is known what a client shows: some ten milliseconds."""
COMMANDS_SHOWN = 100
"""Skills in the list of commands: more than anybody looks through."""
COMMAND_CHARS = 200
"""Of the description of a skill in that list, and of its hint: a line or two."""
QUESTION_DIFF_CHARS = 64 * KIB
"""Of old and new text in a question: a longer diff is left out, for it would push everything else
out of the ring, and the call's input is there as well."""

# --- model ---------------------------------------------------------------------------------
MODEL_CONNECT_S = 5.0
MODEL_STALL_S = 180.0
"""Silence on a model stream; pings count as life (anthropic.md §5)."""
MODEL_WRITE_S = 30.0
MODEL_END_S = 1.0
"""From `message_stop` to the end of the stream: nothing is worth waiting for in between."""
MODEL_REQUEST_RETRIES = 8
"""Of one call that got no answer: at most 92 s of pauses in all (anthropic.md §5)."""
MODEL_STREAM_RETRIES = 5
"""Of one call whose answer broke off: each costs the tokens of the discarded part."""
MODEL_RETRY_FIRST_S = 0.5
"""Longest pause before the first retry; it doubles, and a random part of it is waited."""
MODEL_RETRY_MAX_S = 30.0
MODEL_RETRY_AFTER_MAX_S = 120.0
"""A server's wish to wait longer than this ends the run: people should decide about that."""
ANSWER_TOKENS_MIN = 4_096
"""Room for an answer below which shortening `max_tokens` is no help, and compacting is."""
MAX_TOKENS_DEFAULT = 32_000
MAX_TURNS_DEFAULT = 100
PAUSE_TURNS_MAX = 8
"""Resends in a row without a client tool call (design §9 rule 4)."""
MODEL_SILENCE_NOTICE_S = 20.0
"""Without a first word for so long, people are told: they would look for a hang of ours."""
LOOP_REMIND_CALLS = 3
"""Equal calls in a row from which the model is told so (tools-and-ux.md §2)."""
STOP_HOOKS_MAX = 3
"""Times a run that had an answer is sent on by Stop hooks; then it ends anyway."""
SESSION_END_HOOKS_S = 1.0
"""SessionEnd hooks of a worker that leaves: with their kill grace this stays within the destroy
grace."""
SKILL_PROBLEMS_TOLD = 10
"""Notices of invalid skills: more would bury the others."""
LOOP_ASK_CALLS = 6
"""Equal calls in a row from which a person is asked, whatever the rules say."""
LOOP_STOP_CALLS = 10
"""Equal calls in a row that are not made any more: the run ends as `loop_detected`."""
CACHE_LOOKBACK_BLOCKS = 15
"""Blocks of one message after which it gets a breakpoint inside: the API looks back over 20."""
ERROR_TEXT_CHARS = 4_000
"""Longest error text shown to the model or a client."""
INVALID_JSON_CHARS = 200
"""How much of unparsable tool input is quoted back to the model."""
MESSAGE_CHARS = 32 * MIB
"""Longest response: the API takes requests of 32 MB, so a longer one could never be sent back."""
MESSAGE_DEPTH = 100
"""Deepest nesting of a block or a tool input: some that walk it later are recursive."""
COMPACTION_FOCUS_CHARS = 4_000
"""Longest wish for a summary: what it is longer than is no wish but another text."""
COMPACTION_AT = 0.85
"""Of the room for prompts, at which a conversation is compacted (tools-and-ux.md §4)."""
COMPACTION_KEEP_TURNS = 2
COMPACTION_KEEP_TOKENS = 20_000
"""Kept word for word: the last turns, and more while it is no more than this."""
COMPACTION_KEEP_SHARE = 4
"""Of a small window, one part in so many is kept at most."""
COMPACTION_GAIN_TOKENS = 2_000
"""What a compaction must stand for at least: a summary is about as long itself."""
COMPACTION_SUMMARY_TOKENS = 16_000
"""`max_tokens` of a summary, the thinking before it included."""
COMPACTION_PROMPT_TOKENS = 5_000
"""A prompt under way that is longer is not repeated after the summary."""
COMPACTION_FAILURES_MAX = 3
"""In a row; then nothing is compacted unasked, else every turn would pay for another attempt."""
COMPACTION_BYTES_PER_TOKEN = 3.6
"""Of JSON, for comparing sizes where the API has not counted (tools-and-ux.md §4)."""

# --- tools ---------------------------------------------------------------------------------
PARALLEL_TOOLS = 8
"""Tool calls of one turn that run at once."""
TOOL_NAMES_SHOWN = 20
"""Tools named to a model that asked for one there is not, the likeliest first."""
TOOL_TITLE_CHARS = 200
"""Of the title of a call: a line for people."""
HIDDEN_PATHS_CACHED = 4096
"""Paths of which is known whether a rule hides them: a search asks for each line it found."""
CODE_CALL_S = 210.0
"""For a call that code at the API waits for: after 240 to 270 s the code gets a TimeoutError
(anthropic.md §3.2), and until then the result must have got there."""
CODE_CALL_GRACE_S = 10.0
"""More for what keeps its own time by that: to end a command, and to say what it wrote."""
CODE_ASK_S = 150.0
"""Of that for a person to allow the call: the rest is left to run it."""
TOOL_RESULT_CHARS = 50_000
"""What the model sees of a result at most; bash has a bound of its own."""
MESSAGE_RESULTS_CHARS = 200_000
"""Of all results of one message together (tools-and-ux.md §2)."""
RESULT_CHARS_MIN = 2_000
"""Of a result that comes when the others have used that up: enough to tell what it is about."""
BASH_RESULT_CHARS = 30_000
"""What the model sees of a command: head 30 %, tail 70 % (tools-and-ux.md §1.3)."""
BASH_HEAD_CHARS = 9_000
BASH_TAIL_CHARS = BASH_RESULT_CHARS - BASH_HEAD_CHARS
BASH_TIMEOUT_DEFAULT_S = 120
BASH_TIMEOUT_MAX_S = 600
BASH_ARGV_BYTES = 100_000
"""Longer commands go through a script file: one argv string is limited to 128 KiB."""
BASH_OUTPUT_BYTES = 64 * MIB
"""Output file of one command; beyond it the command is ended with a clear error."""
BASH_WATCH_S = 0.1
"""How often a running command's output is looked at: live text and the size cap."""
BASH_TERM_GRACE_S = 2.0
"""SIGTERM to SIGKILL of a command's process group."""
BASH_KILL_S = 5.0
"""Until a killed group is gone; what lasts longer is in state D and is reported."""
SHOWN_IMAGE_CHARS = 128 * KIB
"""Of base64 in an event: larger images would push everything else out of the ring."""
JOBS_MAX = 8
"""Background jobs of one session that run at once."""
JOBS_KEPT = 32
"""Jobs whose output can be asked for, those that have ended included."""
JOB_BLOCK_MAX_S = 60
"""Longest that `job_output` waits for the end of a job: a turn should not look like a hang."""
JOB_POLL_S = 1.0
"""How often a group that a command left behind is looked at: nothing tells of its end."""
TOOL_OUTPUT_BYTES = 4 * KIB
"""Text of one live `tool_output` event, at most one per BASH_WATCH_S."""

WEB_FETCH_S = 30.0
"""One fetch with all its redirects: somebody waits, and another page is seldom far."""
WEB_BYTES = 5 * MIB
"""Of one page, on the wire and unpacked (tools-and-ux.md §1.3)."""
WEB_REDIRECTS = 5
"""On one host, in a row: to https, to www, to a language; more is a loop."""
WEB_URL_CHARS = 8_000
"""Of a URL: servers take no more in one line."""
WEB_META_BYTES = 2048
"""How far a page is searched for its encoding; the standard says 1024."""
WEB_LIST_LEVELS = 10
"""Levels of lists that are indented."""
WEB_TAG_CHARS = 2048
"""Characters of a tag that are looked at: its attributes, a long address included."""

# --- subagents -----------------------------------------------------------------------------
SUBAGENTS_MAX = 4
"""Live ones of one session: each is a process tree of its own, and a stream of questions."""
SUBAGENT_CREATE_S = SESSION_START_S + HEALTH_S + SHIM_REPLY_S
"""The daemon answers a create within this, or there is none."""
SUBAGENT_DESTROY_S = DESTROY_GRACE_DEFAULT_S + KILL_TREE_S + SHIM_REPLY_S
"""The daemon answers a destroy within this."""
SUBAGENT_END_S = CANCEL_S - DESTROY_GRACE_DEFAULT_S
"""A result waits so long for the end of its subagent, which then goes on behind it: the cancel of a
run, too, has to wait for this."""
SUBAGENT_RETRY_S = 1.0
"""Between two attempts to reach a daemon that is down, or an endpoint whose worker restarts."""
SUBAGENT_SILENT_S = SESSION_START_S
"""An endpoint that does not answer for so long has no worker any more: a start takes less."""
SUBAGENT_DESCRIPTION_CHARS = 200
"""Of a task's description: it is a title."""
SUBAGENT_SHOW_S = 0.1
"""Between two `tool_output` events of one subagent, which then hold what came meanwhile."""

# --- client --------------------------------------------------------------------------------
SERVICE_COMMAND_S = 100.0
"""One command of `daemon install`: above the 90 s that systemd gives a start or a stop."""
CALL_S = 330.0
"""A control call as the client waits for it: above the longest destroy grace."""
STREAM_IDLE_S = 60.0
"""Silence on an event stream with keep-alives every 15 s: the worker is gone."""
MCP_TEST_S = 60.0
"""`sidecarctl mcp test` waits so long for servers that are starting: above three tries of
the default time."""
MCP_TEST_POLL_S = 0.2
"""Between two looks at them."""
