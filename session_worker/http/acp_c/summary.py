"""The session as a list of sessions shows it."""

from __future__ import annotations

from datetime import UTC, datetime

from session_worker import transcript
from session_worker.core import SessionCore
from session_worker.http.acp_c.jsonrpc import Json
from session_worker.http.acp_c.translate import title


def session_info(core: SessionCore) -> Json:
    """A SessionInfo; the title is the start of the first prompt."""
    changed_at = core.spec.places["transcript"].stat().st_mtime
    return {
        "sessionId": core.spec.session_id,
        "cwd": str(core.spec.cwd),
        "title": session_title(core),
        "updatedAt": datetime.fromtimestamp(changed_at, UTC).isoformat(timespec="milliseconds"),
    }


def session_title(core: SessionCore) -> str | None:
    """None before the first prompt. Reads the transcript up to there."""
    for record in transcript.read(core.spec.places["transcript"]):
        if record["kind"] == "run_started" and (shown := title(record["prompt"])):
            return shown
    return None
