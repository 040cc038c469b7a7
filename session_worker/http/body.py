"""A request's body as a checked model."""

from __future__ import annotations

from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from session_worker.http.errors import HttpError

M = TypeVar("M", bound=BaseModel)


async def parse_body(request: web.Request, model: type[M], if_empty: bytes = b"") -> M:
    """Raises `HttpError` (422) that names the first member which is wrong, and why."""
    try:
        return model.model_validate_json(await request.read() or if_empty)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise HttpError(422, "invalid_input", f"{where}: {first['msg']}") from None
