"""A bench for the file tools: a session's directory, and calls of tools in it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

from session_worker.tools.spec import Shell, ToolContext, ToolResult, ToolSpec


class ToolBench:
    """`root` is the session's directory, `outside` one next to it; both are canonical."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        self.root = folder / "root"
        self.outside = folder / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.live: list[str] = []
        self._ids = (f"call_{n}" for n in itertools.count())
        self.ctx = ToolContext(
            call_id="",
            root=self.root,
            shell=Shell(self.root),
            env={"HOME": str(self.outside)},
            spill_dir=folder / "spill",
            emit_output=self.live.append,
        )

    def also(self, **changes: Any) -> ToolContext:
        """The context from now on, with `extra_roots` or `granted` for instance."""
        self.ctx = dataclasses.replace(self.ctx, **changes)
        return self.ctx

    async def call(self, spec: ToolSpec[Any], **given: Any) -> ToolResult:
        """One call, as the dispatcher makes it; whatever comes back must be JSON."""
        params = spec.params.model_validate(given)
        result = await spec.handler(params, dataclasses.replace(self.ctx, call_id=next(self._ids)))
        json.dumps([result.content, result.meta, spec.render(params)]).encode()
        return result

    def file(self, name: str, content: bytes | str = "") -> Path:
        """A file in `root`, with its directories; text is written as it is."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path
