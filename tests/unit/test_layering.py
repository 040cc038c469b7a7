"""The picture of design §13 as a test: who may import whom, and what no file of ours may do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LS_FILES = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
NAMES = subprocess.check_output(LS_FILES, cwd=ROOT, text=True).split("\0")
FILES = [name for name in NAMES if (ROOT / name).is_file()]
SOURCES = [name for name in FILES if name.endswith(".py")]
PACKAGES = ("client", "session_worker", "sidecar")
LINES = 400
REGISTRIES = "pypi|org pythonhosted|org npmjs| deb|debian|org".replace("|", ".").encode().split()


def nodes(name: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse((ROOT / name).read_text()))


def imports(name: str) -> Iterator[str]:
    """The full name of every import; for `from a import b` that is `a.b`, module or not."""
    for node in nodes(name):
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from (prefix + alias.name for alias in node.names)


def within(module: str, *parents: str) -> bool:
    return any(f"{module}.".startswith(f"{parent}.") for parent in parents)


@pytest.mark.parametrize("name", [name for name in SOURCES if name.split("/")[0] in PACKAGES])
def test_packages_import_only_what_is_theirs(name: str) -> None:
    for module in imports(name):
        if within(module, *PACKAGES):
            assert within(module, name.split("/")[0], "sidecar.protocol")
        if name.startswith("sidecar/protocol/"):
            assert within(module, "sidecar.protocol", *sys.stdlib_module_names)
        if name.startswith("session_worker/demo_model") and within(module, "session_worker"):
            assert within(module, "session_worker.demo_model")
        if within(module, "anthropic"):
            assert name == "session_worker/model.py"


@pytest.mark.parametrize("name", SOURCES)
def test_sources_keep_the_house_rules(name: str) -> None:
    source = (ROOT / name).read_text()
    lines = source.count("\n")
    assert lines <= LINES
    found = re.findall(r"TaskGroup\(\) as (\w+)|(\w+): asyncio\.TaskGroup", source)
    groups = {bound or annotated for bound, annotated in found}
    for node in nodes(name):
        assert not (isinstance(node, ast.ImportFrom) and node.level), "a relative import"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            owner, _, called = ast.unparse(node.value.func).rpartition(".")
            parent = owner.rpartition(".")[2].lstrip("_")
            forgotten = called == "create_task" and parent not in groups
            assert not forgotten, f"line {node.lineno}: a task without a parent"


def test_no_file_names_a_package_registry() -> None:
    contents = {name: (ROOT / name).read_bytes() for name in FILES}
    assert [name for name, data in contents.items() if any(map(data.count, REGISTRIES))] == []
