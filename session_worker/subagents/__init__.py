"""Subagents: child sessions that do a part of this session's work (docs/subagents.md).

`delegate.py` makes one, follows it and ends it; the daemon starts it, its own shim and worker run
it, and nothing of it runs in this process.
"""
