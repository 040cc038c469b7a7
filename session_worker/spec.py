"""What the worker is told about its session, as it came over the link."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_worker.provider import Provider, choose_provider
from sidecar.protocol.hooks import Hook
from sidecar.protocol.policy_file import Rules
from sidecar.protocol.ptc import PROFILES, Profile
from sidecar.protocol.rules import Rule, parse_rule


@dataclass(frozen=True)
class Budget:
    """What all model calls of the session may use together; None is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True)
class PermissionSpec:
    """`layers`: the system's rules, then the user's; `hooks` likewise. `headless` is what becomes
    of a question that nobody was there to answer for `headless_after_s`."""

    headless: str
    headless_after_s: float
    additional_dirs: tuple[Path, ...]
    layers: tuple[Rules, ...]
    hooks: tuple[Hook, ...]

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> PermissionSpec:
        return cls(
            wire["headless"],
            wire["headless_after_s"],
            tuple(Path(path) for path in wire["additional_dirs"]),
            tuple(Rules.from_wire(layer) for layer in wire["layers"]),
            tuple(Hook.from_wire(hook) for hook in wire["hooks"]),
        )


@dataclass(frozen=True)
class TcpSpec:
    """The endpoint on loopback. `origins` are the pages that may ask although they are pages."""

    port: int
    token: str = field(repr=False)
    origins: frozenset[str]

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> TcpSpec:
        return cls(wire["port"], wire["token"], frozenset(wire["origins"]))


@dataclass(frozen=True)
class Parent:
    """The session above. `mode` is the laxest it allows; `worker` is the process of it that may
    steer this one (pid, and when it began), None if a person made it."""

    session_id: str
    mode: str
    worker: tuple[int, int] | None

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Parent:
        worker = wire["worker"]
        return cls(wire["session_id"], wire["mode"], worker and (worker["pid"], worker["started"]))


@dataclass(frozen=True)
class SessionSpec:
    """`private` is where Sidecar's own files and sockets are: `runtime`, `state`, `config`. `deny`
    are rules of this session alone.
    `tool_env` is everything a tool's environment holds; provider keys are not in it. `ptc` is None
    where code at the API may call no tools. `private_hosts` are those that `web_fetch` may ask
    wherever they are."""

    session_id: str
    incarnation: int
    restart_reason: str | None
    idle_timeout_s: float
    cwd: Path
    system: str | None
    max_turns: int
    max_tokens: int
    mode: str
    ring_bytes: int
    cgroup: str | None
    tcp: TcpSpec | None
    budget: Budget
    parent: Parent | None
    deny: tuple[Rule, ...]
    control_socket: Path
    prices: dict[str, dict[str, float]]
    permissions: PermissionSpec
    mcp_servers: dict[str, Any]
    ptc: Profile | None
    sandbox: dict[str, Any]
    private_hosts: frozenset[str]
    private: dict[str, Path]
    places: dict[str, Path]
    tool_env: dict[str, str]
    provider: Provider
    client_terminal: bool = False

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> SessionSpec:
        return cls(
            session_id=wire["session_id"],
            incarnation=wire["incarnation"],
            restart_reason=wire["restart_reason"],
            idle_timeout_s=wire["idle_timeout_s"],
            cwd=Path(wire["cwd"]),
            system=wire["system"],
            max_turns=wire["max_turns"],
            max_tokens=wire["max_tokens"],
            mode=wire["mode"],
            ring_bytes=wire["ring_bytes"],
            cgroup=wire["cgroup"],
            tcp=wire["tcp"] and TcpSpec.from_wire(wire["tcp"]),
            budget=Budget(wire["limits"].get("tokens"), wire["limits"].get("cost_usd")),
            parent=wire["parent"] and Parent.from_wire(wire["parent"]),
            deny=tuple(map(parse_rule, wire["deny"])),
            control_socket=Path(wire["control_socket"]),
            prices=wire["prices"],
            permissions=PermissionSpec.from_wire(wire["permissions"]),
            mcp_servers=wire["mcp_servers"],
            ptc=PROFILES[wire["ptc_profile"]] if wire["ptc_profile"] else None,
            sandbox=wire["sandbox"],
            private_hosts=frozenset(wire["web_fetch"]["allow_private"]),
            private={name: Path(path) for name, path in wire["private"].items()},
            places={name: Path(path) for name, path in wire["places"].items()},
            tool_env=wire["tool_env"],
            client_terminal=wire["client_terminal"],
            provider=choose_provider(wire["provider_env"], wire["model"]),
        )
