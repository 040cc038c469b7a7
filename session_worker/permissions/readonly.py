"""The commands that only read: programs, the flags that keep them harmless, and nothing else.

Called by verdict.py. Deny by default: a program, a flag or an abbreviation of one that is not
listed makes the command an ordinary one, which somebody has to allow. Flags that write
(`--output`), run something (`--pre`, `--ext-diff`), take names from a file (`--files0-from`),
follow links (`-R`, `-L`) or never end (`-f`) are left out on purpose.

The value of a flag is read as one more argument: at worst that asks too often. Only a number is
skipped, so that in `grep -A 3 /x src` the pattern is still the pattern. A value must not look
like a flag: in `rg -e -- --pre=x` the `--` is a pattern, and ends nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from session_worker.permissions.words import Kind, Word

HARMLESS_VARIABLES = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE|NO_COLOR|COLUMNS|LINES|TERM")
"""What may stand in front of a read-only command; `HOME=` and `GIT_*` make git run things."""
_SIGNATURE = re.compile(r"%[-+ ]*G")
"""In a format: asks gpg, or whatever program the configuration names for it."""
_NUMBER = re.compile(r"[-+]?[0-9]+[A-Za-z]{0,2}")


@dataclass(frozen=True)
class _Usage:
    """`flags` stand alone, `numeric` and `valued` ones take a value, `attached` ones only right
    behind them; `long` is without dashes.

    `pattern` says that the first argument is no path unless a flag of `instead` is there, `names`
    that links are not followed, so that a glob may fit one to elsewhere (`ls` needs `-d` for
    that), `anything` that no argument is a path.
    """

    flags: str = ""
    numeric: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    minus_number: bool = False
    attached: str = ""
    pattern: bool = False
    instead: frozenset[str] = frozenset()
    names: bool = False
    anything: bool = False


@dataclass(frozen=True)
class Reading:
    """What a read-only command reads: paths, and globs it was given.

    `deep` says that it searches directories for contents, `dotfiles` that it does so in names
    with a leading dot as well, `git` that the directory must be a root, `anywhere` that it does
    not matter.
    """

    paths: list[Word] = field(default_factory=list[Word])
    globs: list[Word] = field(default_factory=list[Word])
    deep: bool = False
    dotfiles: bool = False
    git: bool = False
    anywhere: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DIFF_LONG = """
    abbrev binary cached cc check color color-words compact-summary cumulative diff-algorithm
    diff-filter dirstat dst-prefix exit-code find-copies find-copies-harder find-renames full-index
    function-context histogram ignore-all-space ignore-blank-lines ignore-cr-at-eol
    ignore-space-at-eol ignore-space-change ignore-submodules indent-heuristic inter-hunk-context
    merge-base minimal name-only name-status no-color no-color-moved no-ext-diff no-patch no-prefix
    no-renames no-textconv numstat patch patch-with-stat patience pickaxe-all pickaxe-regex quiet
    raw relative shortstat src-prefix staged stat summary text unified word-diff
    word-diff-regex color-moved
"""
_LOG_LONG = """
    abbrev-commit after all all-match ancestry-path author author-date-order basic-regexp before
    boundary branches cherry cherry-mark cherry-pick clear-decorations committer date date-order
    decorate decorate-refs decorate-refs-exclude dense exclude extended-regexp first-parent
    fixed-strings follow format full-history glob graph grep invert-grep left-only left-right
    log-size max-count max-parents merges min-parents no-abbrev-commit no-decorate no-max-parents
    no-merges no-min-parents no-notes no-walk not notes oneline parents perl-regexp pretty
    reflog regexp-ignore-case remotes reverse right-only root show-pulls simplify-by-decoration
    simplify-merges since skip sparse tags topo-order until walk-reflogs
"""
_LOG = _Usage("abcEFgimpPrRstuwWz", "nUl", "SGL", _words(_DIFF_LONG + _LOG_LONG), True, "MCBX")

_GIT = {
    "status": _Usage("sbvz", "", "", attached="uM", long=_words(
        "ahead-behind branch column find-renames ignore-submodules ignored long no-ahead-behind "
        "no-column no-renames null porcelain renames short show-stash untracked-files verbose"
    )),
    "log": _LOG,
    "show": _LOG,
    "diff": _Usage("abpqrRstuwWz0123", "Ul", "SG", _words(_DIFF_LONG), attached="MCBX"),
    "blame": _Usage("bcefklnpstw", "", "L", attached="MC", long=_words(
        "abbrev color-by-age color-lines date incremental line-porcelain minimal porcelain root "
        "score-debug show-email show-name show-number show-stats since"
    )),
    "rev-parse": _Usage("q", "", "", _words(
        "abbrev abbrev-ref absolute-git-dir all branches git-common-dir git-dir is-bare-repository "
        "is-inside-git-dir is-inside-work-tree is-shallow-repository quiet remotes short "
        "show-cdup show-object-format show-prefix show-superproject-working-tree show-toplevel "
        "symbolic symbolic-full-name tags verify"
    )),
    "ls-files": _Usage("cdfikmorstuvz", "", "x", _words(
        "abbrev cached deduplicate deleted directory eol error-unmatch exclude exclude-standard "
        "full-name ignored killed modified no-empty-directory others stage unmerged"
    )),
}  # fmt: skip

_ENDS = _Usage("qvz", "nc", "", _words("bytes lines quiet silent verbose zero-terminated"), True)

_PROGRAMS = {
    "ls": _Usage("aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ1", "wT", "", _words(
        "all almost-all author block-size classify color context directory escape file-type format "
        "full-time group-directories-first hide hide-control-chars human-readable hyperlink ignore "
        "ignore-backups indicator-style inode kibibytes literal no-group numeric-uid-gid "
        "quote-name quoting-style recursive reverse show-control-chars size sort time time-style "
        "width zero"
    ), names=True),
    "cat": _Usage("AbeEnstTuv", "", "", _words(
        "number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank"
    )),
    "head": _ENDS,
    "tail": _ENDS,
    "wc": _Usage("clmLw", long=_words("bytes chars lines max-line-length words total")),
    "grep": _Usage("EFGPivwxycohHlLnqsbzTaIUrZ", "mABC", "e", _words(
        "after-context basic-regexp before-context binary-files byte-offset color colour context "
        "count exclude exclude-dir extended-regexp files-with-matches files-without-match "
        "fixed-strings ignore-case include initial-tab invert-match line-buffered line-number "
        "line-regexp max-count no-filename no-ignore-case no-messages null null-data only-matching "
        "perl-regexp quiet recursive regexp silent text with-filename word-regexp"
    ), True, pattern=True, instead=frozenset({"e", "regexp"})),
    "rg": _Usage("abcFHiIlnNopPqsSuUvwx0.", "ABCmMjd", "egrtT", _words(
        "after-context before-context binary byte-offset case-sensitive color column context count "
        "count-matches crlf files files-with-matches files-without-match fixed-strings glob "
        "heading hidden iglob ignore-case include-zero invert-match json line-number line-regexp "
        "max-columns max-count max-depth max-filesize multiline multiline-dotall no-filename "
        "no-heading no-ignore no-ignore-vcs no-line-number no-messages null no-config "
        "only-matching passthru pcre2 pretty quiet regexp replace smart-case sort sortr stats text "
        "threads trim type type-list type-not unrestricted vimgrep with-filename word-regexp"
    ), pattern=True, instead=frozenset({"e", "regexp", "files", "type-list"})),
    "stat": _Usage("ft", "", "c", _words("file-system format printf terse"), names=True),
    "file": _Usage("bhikNnr0", "", "", _words(
        "brief extension keep-going mime mime-encoding mime-type no-buffer no-dereference no-pad "
        "print0 raw"
    )),
    "du": _Usage("abchklmSsx0", "dt", "", _words(
        "all apparent-size bytes count-links human-readable inodes max-depth null one-file-system "
        "separate-dirs si summarize threshold time time-style total"
    ), names=True),
    "df": _Usage("ahHiklmPTv", "", "tx", _words(
        "all exclude-type human-readable inodes local output portability print-type si total type"
    ), names=True),
    "diff": _Usage("abBcdEHinNpqstTuwyZ", "UCW", "IL", _words(
        "brief color context expand-tabs ignore-all-space ignore-blank-lines ignore-case "
        "ignore-space-change ignore-tab-expansion ignore-trailing-space initial-tab label minimal "
        "new-file no-dereference normal report-identical-files rcs show-c-function side-by-side "
        "speed-large-files strip-trailing-cr suppress-common-lines text unified width"
    ), True),
    "pwd": _Usage("LP", anything=True),
    "cd": _Usage("LPe"),
    "which": _Usage("as", anything=True),
    "echo": _Usage(names=True, anything=True),
    "true": _Usage(anything=True),
    "false": _Usage(anything=True),
    ":": _Usage(anything=True),
}  # fmt: skip
_VALUELESS = _words("""
    all cached count decorate files first-parent fixed-strings follow graph hidden ignore-case
    name-only name-status no-color no-ignore no-merges no-patch numstat oneline patch porcelain
    recursive reverse short shortstat staged stat summary
""")
"""Long flags that never take the next word; behind any other one, `--` may be its value."""
_GLOB_FIRST = frozenset({"echo", "ls", "stat"})
"""A file named `--files0-from=x` would be a flag of the others."""


def reading(words: tuple[Word, ...], names: tuple[str, ...]) -> Reading | None:
    """What the command reads, None if it may do more; `names` are the variables set in front."""
    program = words[0].text or ""
    if not all(HARMLESS_VARIABLES.fullmatch(name) for name in names):
        return None
    if program == "git":
        return _git(words[1:])
    if program == "echo":
        globs = [word for word in words[1:] if word.is_glob]
        return Reading(globs=globs, anywhere=not globs)
    usage = _PROGRAMS.get(program)
    found = usage and _arguments(usage, words[1:], glob_first=program in _GLOB_FIRST)
    if not usage or not found:
        return None
    paths, globs, flags = found
    if usage.anything:
        return Reading(anywhere=True)
    if program == "ls" and globs and "d" not in flags:
        return None
    if program == "cd" and (len(paths) != 1 or paths[0].text == "-"):
        return None
    deep = program == "rg" or (program == "grep" and not flags.isdisjoint({"r", "recursive"}))
    dotfiles = program != "rg" or not flags.isdisjoint({".", "u", "hidden", "unrestricted"})
    return Reading(paths, globs, deep, dotfiles)


def is_reader(words: tuple[Word, ...]) -> bool:
    """Whether the program is of the set, whatever its arguments, and shows what is in files."""
    texts = [word.text or "" for word in words[:2]]
    if texts[0] == "git":
        return texts[-1] in _GIT
    return texts[0] in _PROGRAMS and not _PROGRAMS[texts[0]].names


def _git(words: tuple[Word, ...]) -> Reading | None:
    """Only `--no-pager` may stand in front: `-c` sets what git runs, `-C` where."""
    if words and words[0].text in ("--no-pager", "-P"):
        words = words[1:]
    usage = _GIT.get(words[0].text or "") if words else None
    found = usage and _arguments(usage, words[1:], glob_first=False)
    if not found or any(_SIGNATURE.search(word.text or "") for word in words):
        return None
    return Reading(found[0], git=True)


def _arguments(
    usage: _Usage, words: tuple[Word, ...], *, glob_first: bool
) -> tuple[list[Word], list[Word], frozenset[str]] | None:
    """Paths, globs and flags; None if one of them is not on the list."""
    paths: list[Word] = []
    globs: list[Word] = []
    flags: set[str] = set()
    taker = ""  # the flag in front that may take this word for its value
    only_paths = False
    for word in words:
        text, before, taker = word.text, taker, ""
        number = text is not None and _NUMBER.fullmatch(text)
        if number and len(before) == 1 and before in usage.numeric:
            continue
        if text is None:
            if not _tame_glob(usage, word, leading=glob_first or only_paths):
                return None
            globs.append(word)
        elif only_paths or text == "-" or not text.startswith("-"):
            paths.append(word)
        elif len(before) == 1 or (text == "--" and before):
            return None
        elif text == "--":
            only_paths = True
        elif not (usage.minus_number and text[1:].isdecimal()):
            found = _long(usage, text[2:]) if text.startswith("--") else _short(usage, text[1:])
            if found is None:
                return None
            taker = found[1]
            flags |= found[0]
    if usage.pattern and paths and not flags & usage.instead:
        paths.pop(0)
    return paths, globs, frozenset(flags)


def _tame_glob(usage: _Usage, word: Word, *, leading: bool) -> bool:
    """Whether the names that a pattern stands for are arguments the program may have."""
    if not usage.names or not word.is_glob or word.raw.startswith("-"):
        return False
    return leading or word.pieces[0][0] is Kind.TEXT


def _long(usage: _Usage, text: str) -> tuple[set[str], str] | None:
    """The flag, and its name again if the next word may be its value."""
    name, has_value, _ = text.partition("=")
    if name not in usage.long or (name == "regexp" and not has_value):
        return None
    return {name}, "" if has_value or name in _VALUELESS else name


def _short(usage: _Usage, text: str) -> tuple[set[str], str] | None:
    """The letters up to the first that has a value, and that one if the value is still to come."""
    for at, letter in enumerate(text):
        if letter in usage.attached:
            return set(text[: at + 1]), ""
        if letter in usage.numeric or letter in usage.valued:
            return set(text[: at + 1]), letter if at + 1 == len(text) else ""
        if letter not in usage.flags:
            return None
    return set(text), ""
