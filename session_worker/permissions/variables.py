"""Variables that decide what runs: which program, with which libraries, hooks or start-up files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from session_worker.permissions.words import Word

_STEERING = re.compile(
    r"""PATH | CDPATH | IFS | ENV | HOME | SHELL | TMPDIR | PS4 | PROMPT_COMMAND | GLOBIGNORE
      | BASH.* | SHELLOPTS | FUNCNEST | LD_.* | DYLD_.* | GCONV_PATH | LOCPATH | NLSPATH | MALLOC_.*
      | GIT_.* | SSH_.* | XDG_.* | .*PAGER | .*EDITOR | VISUAL | BROWSER | LESS.*
      | PYTHON.* | PERL.* | RUBY.* | NODE_.* | npm_.* | NPM_.* | YARN_.* | PIP_.* | UV_.* | GEM_.*
      | BUNDLE_.* | JAVA_.* | .*JAVA_OPTIONS | CLASSPATH | LUA_.* | GO(?:FLAGS|PATH|ROOT|PROXY)
      | CARGO.* | RUSTC.* | RUSTFLAGS | MAKE(?:FLAGS|FILES) | CC | CXX | LD | AR | .*FLAGS
      | RIPGREP_CONFIG_PATH | TAR_OPTIONS | RSYNC_RSH | .*_CONFIG | DOCKER_.* | KUBECONFIG
      | [a-z]+_proxy | [A-Z]+_PROXY | .*_PRELOAD | \?""",
    re.VERBOSE,
)


def steers(name: str) -> bool:
    """Whether setting the variable may change what a harmless command does."""
    return _STEERING.fullmatch(name) is not None


_SETTERS = frozenset(
    {"declare", "export", "getopts", "let", "local", "mapfile", "printf", "read", "readarray",
     "readonly", "typeset", "unset"}
)  # fmt: skip


def sets_steering(words: Sequence[Word]) -> bool:
    """Whether the command is a builtin that may set such a variable: `read PATH`."""
    if not words or words[0].text not in _SETTERS:
        return False
    return any(word.text is None or steers(word.text.partition("=")[0]) for word in words[1:])
