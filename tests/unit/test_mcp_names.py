"""The names of MCP tools (tools-and-ux.md §6)."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from session_worker.mcp_servers.names import Origin, assign, plain

API_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ORIGINS = st.lists(
    st.tuples(st.text("a_.-é", max_size=60), st.text("ab_./ ", max_size=60)), unique=True
)


def names(*origins: Origin, builtin: tuple[str, ...] = ()) -> dict[Origin, str]:
    return {origin: name for name, origin in assign(origins, {}, builtin).items()}


def digested(server: str, tool: str) -> str:
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{plain(server, tool)[:55]}_{digest}"


def test_a_tool_is_named_after_its_server_and_itself() -> None:
    assert names(("gh", "list-issues")) == {("gh", "list-issues"): "gh__list-issues"}


def test_what_the_api_does_not_take_becomes_an_underscore() -> None:
    assert plain("my.server", "a/b c") == "my_server__a_b_c"


def test_the_servers_part_has_no_separator_inside() -> None:
    assert plain("a____b", "c__d") == "a_b__c__d"


def test_a_long_name_ends_in_a_digest() -> None:
    long = ("server", "t" * 80)
    assert names(long) == {long: digested(*long)}
    assert len(digested(*long)) == 64


def test_of_two_that_collide_the_one_that_was_changed_gets_the_digest() -> None:
    assert names(("a", "b.c"), ("a", "b_c")) == {
        ("a", "b_c"): "a__b_c",
        ("a", "b.c"): digested("a", "b.c"),
    }


def test_of_two_that_were_changed_both_get_a_digest() -> None:
    assert set(names(("a", "b.c"), ("a", "b/c")).values()) == {
        digested("a", "b.c"),
        digested("a", "b/c"),
    }


def test_no_tool_takes_the_name_of_a_builtin_one() -> None:
    assert names(("a", "b"), builtin=("a__b",)) == {("a", "b"): digested("a", "b")}


@given(ORIGINS)
def test_every_name_is_unique_and_one_the_api_takes(origins: list[Origin]) -> None:
    table = assign(origins, {}, ())
    assert sorted(table.values()) == sorted(origins)
    assert all(map(API_NAME.fullmatch, table))


@given(ORIGINS, st.randoms())
def test_the_order_of_servers_and_tools_does_not_matter(origins: list[Origin], random: Any) -> None:
    shuffled = random.sample(origins, len(origins))
    assert assign(shuffled, {}, ()) == assign(origins, {}, ())


@given(ORIGINS, ORIGINS)
def test_a_name_never_comes_to_mean_another_tool(first: list[Origin], then: list[Origin]) -> None:
    before = assign(first, {}, ())
    after = assign(then, before, ())
    assert {name: after[name] for name in before} == before
    assert set(after.values()) == {*first, *then}
