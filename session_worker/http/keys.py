"""Where handlers find the session: the application's typed keys."""

from aiohttp import web

from session_worker.core import SessionCore

CORE = web.AppKey("core", SessionCore)
