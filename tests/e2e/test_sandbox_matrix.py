"""What commands can do at each level of the sandbox: real processes, this one is the worker.

A level that the system does not have is skipped, with its reason.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_worker.sandbox import Level
from sidecar.protocol import prctl
from tests.support.sandboxed import Confined, at, confine, directories

PYTHON = [os.path.realpath(sys.executable), "-IS", "-c"]
"""Not by its name in a virtual environment, which may be in /tmp."""
PR_SET_DUMPABLE = 4
CONFINED = (Level.GUARD, Level.JAIL)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a sandbox")

PROBE = """
import _multiprocessing, ctypes, json, os, resource, signal, socket, sys, tempfile
place = json.loads(sys.argv[1])
root, outside, worker = place["root"], place["outside"], place["pid"]
task = f"/proc/{worker}/task"

def read(path):
    with open(path, "rb") as file:
        if not file.read(1):
            raise OSError("it is empty")

def write(path):
    with open(path, "w") as file:
        file.write("x")

def connect(address, family=socket.AF_UNIX):
    socket.socket(family).connect(address)

def own_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect(server.getsockname(), socket.AF_INET)

def send(address):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", tuple(address))

def of_any_thread(act):
    errors = []
    for thread in os.listdir(task):
        try:
            return act(int(thread))
        except OSError as error:
            errors.append(error)
    raise errors[0]

def signal_by_directory(thread):
    signal.pidfd_send_signal(os.open(f"/proc/{thread}", os.O_RDONLY), 0)

def own_rename():
    os.makedirs(f"{root}/a")
    write(f"{root}/a/file")
    os.rename(f"{root}/a/file", f"{root}/moved")

def io_uring():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 1, None)
    if ctypes.get_errno() in (1, 38):
        raise OSError

acts = {
    "write in a root": lambda: write(f"{root}/new"),
    "rename within a root": own_rename,
    "write a temporary file": lambda: tempfile.TemporaryFile().write(b"x"),
    "write to /dev/null": lambda: write("/dev/null"),
    "write to its own output by name": lambda: open("/dev/stderr", "a").close(),
    "make a semaphore": lambda: _multiprocessing.SemLock(1, 1, 1, "/" + place["id"], True),
    "write outside": lambda: write(f"{outside}/new"),
    "truncate outside": lambda: os.truncate(f"{outside}/file", 0),
    "change a mode outside": lambda: os.chmod(f"{outside}/text", 0o600),
    "link in from outside": lambda: os.link(f"{outside}/file", f"{root}/linked"),
    "rename to outside": lambda: os.rename(f"{root}/new", f"{outside}/renamed"),
    "read outside": lambda: read(f"{outside}/text"),
    "read a secret directory": lambda: read(f"{place['home']}/.ssh/id"),
    "read a secret file": lambda: read(f"{place['home']}/.netrc"),
    "plant a git hook": lambda: write(f"{root}/.git/hooks/pre-commit"),
    "change git's settings": lambda: write(f"{root}/.git/config"),
    "put another .git in place": lambda: os.rename(f"{root}/.git", f"{root}/git"),
    "make an IP connection to the host": lambda: connect(tuple(place["tcp"]), socket.AF_INET),
    "make a datagram socket": lambda: send(place["udp"]),
    "serve itself over IP": own_server,
    "make an odd socket": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    "reach an abstract socket": lambda: connect("\\0" + place["id"]),
    "reach our sockets": lambda: connect(f"{place['private']}/socket"),
    "signal the worker": lambda: os.kill(worker, 0),
    "signal a thread of the worker": lambda: of_any_thread(lambda thread: os.kill(thread, 0)),
    "signal one by its directory": lambda: of_any_thread(signal_by_directory),
    "read the worker's environment": lambda: read(f"/proc/{worker}/environ"),
    "change the worker's limits": lambda: resource.prlimit(worker, resource.RLIMIT_CORE),
    "make an io_uring": io_uring,
}
done = {}
for name, act in acts.items():
    try:
        act()
        done[name] = True
    except OSError:
        done[name] = False
print(json.dumps(done))
"""

YES, NO, ANY = True, False, None
"""ANY: not ours to say, the system may forbid it without us."""
MATRIX = {  # none, guard, jail
    "write in a root": (YES, YES, YES),
    "rename within a root": (YES, YES, YES),
    "write a temporary file": (YES, YES, YES),
    "write to /dev/null": (YES, YES, YES),
    "write to its own output by name": (YES, YES, YES),
    "make a semaphore": (YES, YES, YES),
    "write outside": (YES, NO, NO),
    "truncate outside": (YES, NO, NO),
    "change a mode outside": (YES, YES, NO),  # nothing of Landlock's
    "link in from outside": (YES, NO, NO),
    "rename to outside": (YES, NO, NO),
    "read outside": (YES, YES, YES),
    "read a secret directory": (YES, YES, NO),
    "read a secret file": (YES, YES, NO),
    "plant a git hook": (YES, YES, NO),
    "change git's settings": (YES, YES, NO),
    "put another .git in place": (YES, YES, NO),
    "make an IP connection to the host": (YES, NO, NO),
    "make a datagram socket": (YES, NO, YES),
    "get a datagram through to the host": (YES, NO, NO),
    "serve itself over IP": (YES, NO, YES),
    "make an odd socket": (ANY, NO, NO),
    "reach an abstract socket": (YES, NO, NO),
    "reach our sockets": (YES, YES, NO),
    "signal the worker": (YES, NO, NO),
    "signal a thread of the worker": (YES, NO, NO),
    "signal one by its directory": (YES, NO, NO),
    "read the worker's environment": (YES, NO, NO),
    "change the worker's limits": (YES, NO, NO),
    "make an io_uring": (ANY, NO, NO),
}
WITH_SCOPES = {
    "reach an abstract socket",
    "signal the worker",
    "signal a thread of the worker",
    "signal one by its directory",
}
"""Kept from a guard by Landlock ABI 6."""


@pytest.fixture
def base() -> Iterator[Path]:
    with directories() as base:
        yield base


@pytest.fixture
def confined(base: Path, request: pytest.FixtureRequest) -> Iterator[Confined]:
    with confine(request.param, base, base / "root") as confined:
        yield confined


@at(*Level)
def test_a_command_can_do_what_its_level_allows_and_no_more(confined: Confined) -> None:
    level = list(Level).index(confined.level)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as private,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        private.bind(str(confined.base / "private" / "socket"))
        abstract.bind("\0" + confined.base.name)
        private.listen()
        abstract.listen()
        place = {
            "id": confined.base.name,
            "root": str(confined.root),
            "outside": str(confined.base / "outside"),
            "home": str(confined.base / "home"),
            "private": str(confined.base / "private"),
            "pid": os.getpid(),
            "tcp": tcp.getsockname(),
            "udp": udp.getsockname(),
        }
        code, output = confined.run([*PYTHON, PROBE, json.dumps(place)])
        assert code == 0, output
        done = json.loads(output)
        udp.setblocking(False)
        try:
            done["get a datagram through to the host"] = udp.recv(1) == b"x"
        except BlockingIOError:
            done["get a datagram through to the host"] = False
    expected = {act: levels[level] for act, levels in MATRIX.items() if levels[level] is not ANY}
    if confined.level == Level.GUARD and not confined.detail["signals"]:
        expected = {act: may for act, may in expected.items() if act not in WITH_SCOPES}
    assert {act: done[act] for act in expected} == expected
    assert done.keys() == MATRIX.keys()


@pytest.mark.parametrize("level", CONFINED)
def test_a_sandbox_with_network_leaves_ip_alone(level: Level, base: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        confine(level, base, base / "root", network=True) as confined,
    ):
        port = server.getsockname()[1]
        assert confined.bash(f"exec 3<>/dev/tcp/127.0.0.1/{port}") == (0, "")


@pytest.fixture
def hidden_memory() -> Iterator[None]:
    """As a worker has it."""
    prctl.hide_memory()
    yield
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


@at(*CONFINED)
def test_the_memory_of_no_thread_of_a_worker_can_be_read(
    confined: Confined, hidden_memory: None
) -> None:
    """Root too; the launcher's own thread, in a guard, is one of the commands to Landlock."""
    look = "for f in /proc/$0/environ /proc/$0/task/*/{environ,mem,maps}; do head -c1 $f; done"
    _, output = confined.run(["bash", "-c", f"({look}) 2>/dev/null", str(os.getpid())])
    assert output == ""


@at(*CONFINED)
def test_a_call_by_another_architectures_number_ends_the_process(confined: Confined) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("needs the 32-bit calls of x86_64")
    code = r"""
import ctypes, mmap
getpid = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret
page = mmap.mmap(-1, len(getpid), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(getpid)
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
    if subprocess.run([*PYTHON, code], check=False).returncode != 0:
        pytest.skip("this kernel has no 32-bit calls")
    exit_code, _ = confined.run([*PYTHON, code])
    assert exit_code in (-signal.SIGSYS, 128 + signal.SIGSYS)


@at(*Level)
def test_the_worker_itself_stays_free(confined: Confined) -> None:
    assert confined.bash("true") == (0, "")
    (confined.base / "outside" / "ours").write_text("x")
    socket.socket(socket.AF_INET).close()
    status = Path("/proc/self/status").read_text()
    assert "NoNewPrivs:\t0\n" in status
    assert "Seccomp:\t0\n" in status
