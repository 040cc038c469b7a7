"""Programmatic tool calling: the two readings of it that the Messages API is written with.

`config.toml` chooses one by its name, and the worker writes its requests by it (anthropic.md §4).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """`tool_type` is the code execution tool, and who tools name in `allowed_callers`; `betas` go
    with every request that has it."""

    tool_type: str
    betas: tuple[str, ...] = ()


CURRENT = "current"
PROFILES = {
    CURRENT: Profile("code_execution_20260120"),
    "seed": Profile("code_execution_20250825", ("advanced-tool-use-2025-11-20",)),
}
