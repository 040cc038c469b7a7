"""The demo model: a scripted server that speaks the Messages API over real HTTP.

The default model where there is no key, and the model server of the tests. Imports nothing of the
worker; is a script, and says so.
"""

from session_worker.demo_model.intents import DEMO_MODEL_ID, demo_script
from session_worker.demo_model.reply import (
    Answer,
    ApiError,
    Fault,
    Json,
    Reply,
    Request,
    Script,
    Streamed,
    queue_script,
    text,
    thinking,
    tool_use,
)
from session_worker.demo_model.scenario import ScenarioError, load_scenario
from session_worker.demo_model.server import UNIX_BASE_URL, DemoModel, Received, serve_unix

__all__ = [
    "DEMO_MODEL_ID",
    "UNIX_BASE_URL",
    "Answer",
    "ApiError",
    "DemoModel",
    "Fault",
    "Json",
    "Received",
    "Reply",
    "Request",
    "ScenarioError",
    "Script",
    "Streamed",
    "demo_script",
    "load_scenario",
    "queue_script",
    "serve_unix",
    "text",
    "thinking",
    "tool_use",
]
