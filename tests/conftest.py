"""Fixtures of every test."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # started in the background by a shell: what the tests start must hear Ctrl-C all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
