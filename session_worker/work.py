"""The agent at work: made when the first prompt comes, then serving one after another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from session_worker.agent import Agent, Progress, prepare
from session_worker.conversation import Conversation
from session_worker.core import SessionCore
from session_worker.equipment import Equipment, equip
from session_worker.loop import serve_prompts
from session_worker.mcp_servers.connector import Connector
from session_worker.mcp_servers.servers import Servers
from session_worker.model import Model
from session_worker.prefix import Prefix
from session_worker.programmatic import with_code
from session_worker.project.place import Place
from session_worker.project.skills import Skills, find_skills
from session_worker.prompt import system_prompt
from session_worker.request import RequestWriter
from session_worker.restore import restored_system
from session_worker.result import AgentLoopResult
from session_worker.session_servers import find_servers
from session_worker.tools.jobs import Jobs
from session_worker.tools.spec import Launch
from session_worker.transcript import Record, TranscriptFull, read
from session_worker.turn import StopReason
from sidecar.protocol import bounds


async def work(
    core: SessionCore, model: Model, launch: Launch, records: list[Record], cwd: Path | None
) -> None:
    """Serve prompts, going on from `records`, in the directory where the last command ended.

    What the agent starts with is looked at when the first prompt comes, and then frozen: a create
    waits neither for files nor for git.
    """
    place = Place.of(core.spec)
    servers = core.mcp_servers = find_servers(core, place)
    async with asyncio.TaskGroup() as group:
        if servers:
            group.create_task(_start(servers, group))
        system = restored_system(records)
        early = group.create_task(_offer_early(core, place))
        if system is None:
            await core.wait_for_work()
        early.cancel()
        skills = find_skills(place)
        core.offer_commands(skills.by_name.values())
        if system is None:
            system = await _first_system(core, place, skills)
        equipment = equip(core, place, skills.by_name, launch, records, cwd, group)
        group.create_task(_watch_jobs(core, equipment.tools.jobs))
        try:
            context = await _session_start(core, equipment)
            while True:
                await core.wait_for_work()
                if servers and (missing := await _wait_ready(core, servers)):
                    if core.busy:  # the prompt may have been cancelled meanwhile
                        core.finish(await core.next_run(), _refusal(missing))
                    continue
                agent = _agent(core, model, system, records, equipment)
                records = []  # what was compacted need not stay in memory
                agent.context, context = context, ""
                ahead = group.create_task(prepare(agent))
                await serve_prompts(agent)
                ahead.cancel()
                records = await asyncio.to_thread(_read, core)
        finally:
            if core.stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(bounds.SESSION_END_HOOKS_S):
                        await equipment.hooks.fire(
                            "SessionEnd", "destroyed", {"reason": "destroyed"}
                        )


async def _start(servers: Servers, group: asyncio.TaskGroup) -> None:
    """Behind the create, which waits for a sign of life of this process."""
    await asyncio.sleep(bounds.MCP_BEHIND_S)
    servers.start(group)


async def _offer_early(core: SessionCore, place: Place) -> None:
    """Who opens a session in an editor sees its commands before the first prompt."""
    await core.visited.wait()
    skills = await asyncio.to_thread(find_skills, place)
    core.offer_commands(skills.by_name.values())


async def _wait_ready(core: SessionCore, servers: Servers) -> str:
    """Why no prompt can be served; empty if one can.

    Tools that are there from the start keep the prompt cache whole; who is late joins later.
    """
    missing = await servers.wait_ready(
        lambda name: core.notice("info", f"Waiting for MCP server {name}: it is required.")
    )
    for server in servers.status():
        if server["state"] in ("failed", "unauthorized"):
            core.notice(
                "warning", f"MCP server {server['name']} is {server['state']}: {server['reason']}"
            )
    return missing


def _refusal(missing: str) -> AgentLoopResult:
    error = {"type": "mcp_server_required", "message": missing}
    return Progress().result(StopReason.ERROR, error)


async def _session_start(core: SessionCore, equipment: Equipment) -> str:
    """What SessionStart hooks want the model to know."""
    source = "startup" if core.spec.incarnation == 1 else "resume"
    told = {"source": source, "model": core.spec.provider.model}
    heard = await equipment.hooks.fire("SessionStart", source, told)
    equipment.gate.heard(heard)
    return heard.context


def _agent(
    core: SessionCore, model: Model, system: str, records: list[Record], equipment: Equipment
) -> Agent:
    """The agent of the model that is chosen now, with the conversation as the transcript has it."""
    provider = core.spec.provider
    facts = provider.facts
    version, servers = core.tools_version, core.mcp_servers
    schemas = equipment.tools.offer(servers.tools() if servers else ())
    connector = servers.connector() if servers else Connector()
    schemas += connector.toolsets
    if core.spec.ptc:
        schemas = with_code(schemas, core.spec.ptc.tool_type)
    conversation = Conversation(
        core.transcript,
        records,
        provider.model,
        [system, schemas],
        api_blocks=facts.compaction,
    )
    writer = RequestWriter(
        provider.model, system, schemas, cached=facts.caching, mcp_servers=connector.servers
    )
    prefix = Prefix(writer)
    return Agent(
        core.spec, facts, core, conversation, model, writer, prefix, equipment, version, connector
    )


def _read(core: SessionCore) -> list[Record]:
    return list(read(core.spec.places["transcript"]))


async def _watch_jobs(core: SessionCore, jobs: Jobs) -> None:
    def on_change() -> None:
        core.background = len(jobs.running())

    await jobs.watch_all(on_change)


async def _first_system(core: SessionCore, place: Place, skills: Skills) -> str:
    """Made once in a session's life: later workers read it off the transcript."""
    system = await system_prompt(core.spec, place, skills.by_name)
    with suppress(TranscriptFull):  # the run itself will say so
        core.transcript.append("note", note="system", system=system)  # synced with what follows
    for problem in skills.problems[: bounds.SKILL_PROBLEMS_TOLD]:
        core.notice("warning", f"A skill is not used: {problem}")
    return system
