"""Taking in the bodies of requests: bounded in size, in time, and in how many at once.

`app.py` calls it before the handler of any request that may change something. A body is whole
before anybody looks at it.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from aiohttp import web

from session_worker.http.errors import HttpError
from sidecar.protocol import bounds

BODY_S = 60.0
"""From its head to its end, for one request: 16 MiB over a slow tunnel, no drip of bytes."""
SMALL_BODY_BYTES = 64 * bounds.KIB
"""Bodies up to this never wait: as much is buffered for any connection."""
LARGE_BODIES = 4
"""Larger ones that are read at once, 64 MiB in all; others wait, and are not read meanwhile."""


class Intake:
    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LARGE_BODIES)

    async def take(self, request: web.Request) -> None:
        """Have the whole body, which `request.read` then gives. Raises `HttpError`."""
        length = request.content_length
        if length is not None and length > bounds.HTTP_BODY_BYTES:
            raise HttpError(413, "too_large", f"a body has at most {bounds.HTTP_BODY_BYTES} bytes")
        large = request.body_exists and (length is None or length > SMALL_BODY_BYTES)
        try:
            async with asyncio.timeout(BODY_S), self._turns if large else nullcontext():
                await request.read()
        except TimeoutError:
            raise HttpError(408, "timed_out", f"the body took over {BODY_S:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError):
            raise HttpError(400, "invalid_input", "the body broke off") from None


INTAKE = web.AppKey("intake", Intake)
