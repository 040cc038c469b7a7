"""The sandbox for commands: what is asked for, what can be had, and starting commands in it."""

from session_worker.sandbox.launcher import Launcher
from session_worker.sandbox.level import Level, Obtained, SandboxUnavailable, SandboxWish, obtain

__all__ = ["Launcher", "Level", "Obtained", "SandboxUnavailable", "SandboxWish", "obtain"]
