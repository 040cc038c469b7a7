"""Errors of the data plane outside JSON-RPC: always `{"code", "message"}` (design §5)."""

from __future__ import annotations

from aiohttp import web


class HttpError(Exception):
    """A refusal the client is meant to see. ACP-R knows three codes: `invalid_input`,
    `not_found`, `server_error`; its SDK fails on others, so its routes use only these."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def error_response(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)
