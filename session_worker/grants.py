"""The descriptors a shim is born with, in the order they are passed (SCM_RIGHTS)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Grants:
    """`endpoint` and `control` listen; `link` leads to the daemon; `log` takes stdout, stderr."""

    endpoint: socket.socket
    control: socket.socket
    link: socket.socket
    log: int

    COUNT = 4

    @classmethod
    def from_fds(cls, fds: list[int]) -> Grants:
        if len(fds) != cls.COUNT:
            raise ValueError(f"{cls.COUNT} descriptors make a session, not {len(fds)}")
        endpoint, control, link = (socket.socket(fileno=fd) for fd in fds[:3])
        return cls(endpoint, control, link, fds[3])

    @property
    def fds(self) -> list[int]:
        return [self.endpoint.fileno(), self.control.fileno(), self.link.fileno(), self.log]

    def redirect_output(self) -> None:
        """Send our stdout and stderr to the session's log, and read from nothing."""
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(self.log, 1)
        os.dup2(self.log, 2)
        os.close(null)
        os.close(self.log)
