"""Commands and what becomes of them: one table, each row with what decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_worker.permissions.policy import Decision
from session_worker.permissions.verdict import decide
from tests.support.permissions import bash, judge, layer, policy, realpath

Group = tuple[str, str, str, tuple[str, ...]]
TABLE: list[Group] = []


def rows(expected: str, *commands: str, mode: str = "ask", rules: str = "") -> None:
    """Commands that one thing decides; a row is tried alone, a group is one test."""
    TABLE.append((expected, mode, rules, commands))


# --- what only reads, inside the roots ------------------------------------------------------
rows(
    "allow:builtin",
    "ls", "ls -la src", "ls -la /w/repo/src /w/lib", "ls --color=never", "ls -d *.py", "ls 'a b'",
    "cat README.md", "cat -n ./src/x.py", "cat src//../src/x.py", "head -5 x", "head -n 20 x",
    "tail -n +5 x", "wc -l x", "stat src/*.py", "du -s src/*", "echo src/*", "grep -rn foo src",
    "grep -A 3 /etc/x src", "grep -c '' x", "grep -e foo x", "rg foo", "rg -n 'a|b' src",
    "rg -tpy foo", "rg --files src", "rg -g '*.py' foo", "stat x", "file x", "du -sh src", "df -h",
    "pwd", "which python", "which -a ls", "echo hi", "echo $HOME $X", "echo $(ls)", "echo {a,b}",
    "echo \"$(git status)\"", "diff a b", "diff -u a b", "true", ":", "cd src", "cd src; cat x",
    "cd src && ls", "git status", "git status --short", "git status -sb", "git --no-pager log",
    "git log --oneline -5", "git log --stat -- src", "git log -n 3 --format='%h %s'",
    "git log --author=x", "git log main..dev", "git diff", "git diff --cached",
    "git diff HEAD~1 -- x", "git diff -U5 -w", "git show HEAD:x", "git show --name-only",
    "git blame -L 1,10 x", "git rev-parse --abbrev-ref HEAD", "git ls-files",
    "git ls-files -o --exclude-standard", "ls | head -5", "ls && pwd || echo no", "ls; pwd",
    "ls & pwd", "ls |& head", "(ls; pwd)", "{ ls; }", "! ls", "time ls", "time -p ls",
    "timeout 5 ls", "timeout -k 5 10s git status", "nice -n 5 ls", "nohup ls", "stdbuf -oL ls",
    "command ls", "if ls; then pwd; else ls src; fi", "for f in a b; do ls; done",
    "while true; do ls; done", "case x in a) ls;; esac", "[[ -f x ]] && cat x", "[ -d src ] && ls",
    "ls 2>/dev/null", "ls 2>&1", "ls >/dev/null 2>&1", "ls 2>/dev/null -la", "cat < x",
    "cat <<< hi", "cat <<EOF\nhi $x\nEOF", "cat <<'EOF'\n$(rm x)\nEOF",
    "cat <<-EOF\n\thi\n\tEOF\nls", "cat <<EOF | head\nhi\nEOF\n", "ls \\\n  -l", "ls # rm -rf /",
    "# nothing", "", "LC_ALL=C ls", "x=1; echo $x", "echo ${x:-y} ${#x} ${x%.py} $((1 + 2))",
    "cat ~/../../w/repo/x", "'ls'", "l\\s", "cat notes", "ls -- -x",
)  # fmt: skip

# --- what reads elsewhere, or may ------------------------------------------------------------
rows(
    "ask:mode ask",
    "cat /etc/passwd", "cat ../x", "cat ~/x", "cat $HOME/x", "cat ~root/x", "cat ~+/x",
    "cat away/passwd", "cat away/../passwd", "ls away", "cat /w/repo-old/x", "cat /w/repository/x",
    "cat /proc/self/environ", "cd /etc; cat passwd", "cd ..; cat x", "cd src && cat ../../x",
    "cd away && ls", "cd $X; cat x", "cd -; cat x", "cd; cat x", "cd src; cd ..; cat ../x",
    "pushd /etc; cat passwd", "f() { cd /etc; }; f; cat passwd", "while cd ..; do cat x; done",
    "cat *.py", "cat a*/x", "ls *", "ls -d */x", "wc -l src/*.py", "du *", "wc *.py", "cat $X",
    "cat \"$X\"", "ls $(pwd)", "cat {x,/etc/passwd}", "cat <(ls)", "ls -L away",
    "cat $'/etc/passwd'", "cat $'\\x2fetc/passwd'", "cat \"/etc\"/passwd", "cat /et\\c/passwd",
    "grep -f /etc/passwd x", "grep -R foo src", "grep foo /etc/passwd", "grep -e foo /etc/passwd",
    "grep --file=x y", "grep 404 /etc/passwd", "diff -r a b", "diff --to-file=/etc/passwd a",
    "diff x /etc/passwd", "wc --files0-from=x", "du -L src", "tail -f x", "head -5 /etc/passwd",
    "rg -L foo", "git diff --no-index a /etc/passwd", "git blame --contents /etc/passwd x",
    "git diff -O/etc/passwd", "git ls-files -X /etc/passwd", "echo /etc/*", "file -f x",
)  # fmt: skip

# --- what does more than read -----------------------------------------------------------------
rows(
    "ask:mode ask",
    "rm x", "r\\m x", '"rm" x', "'rm' x", "$'rm' x", "$'\\162m' x", "\\rm x", "command rm x",
    "exec rm x", "builtin eval ls", "eval ls", ". x", "source x", "bash x", "sh -c ls",
    "bash -c 'cat x'", "bash -c 'git status'", "python -c 'print(1)'", "env ls", "env -S 'ls'",
    "find . -name x", "find . -exec ls ;", "find src -delete", "find . -fprintf x y", "xargs ls",
    "ls | xargs cat", "$X", "$X ls", "$(echo rm) x", "`echo rm` x", "rm$X", "time rm x", "! rm x",
    "ls; rm x", "ls\nrm x", "ls & rm x", "ls |& tee x", "ls | tee x", "ls || rm x", "(rm x)",
    "{ rm x; }", "echo $(rm x)", "echo `rm x`", "echo \"$(rm x)\"", "cat <(rm x)", "ls > >(rm x)",
    "echo $(echo $(rm x))", "if rm x; then ls; fi", "for f in $(rm x); do ls; done",
    "while rm x; do ls; done", "case $(rm x) in a) ls;; esac", "[[ -f $(rm x) ]]",
    "ls() { rm x; }; ls", "ls() { pwd; }; ls", "alias ls=rm; ls", "x=$(rm x)", "x=(a $(rm x))",
    "LC_ALL=$(rm x) ls", "export PATH=.; ls", "PATH=.; ls", "PATH=. ls", "LD_PRELOAD=x ls",
    "GIT_PAGER=x git log", "GIT_EXTERNAL_DIFF=x git diff", "BASH_ENV=x ls", "IFS=x; ls",
    "RIPGREP_CONFIG_PATH=x rg foo", "HOME=/etc; cat ~/x", "FOO=1 ls", "git push", "git commit -m x",
    "git -c core.pager=x log", "git -C src status", "git -p log", "git --exec-path=. status",
    "git diff --output=x", "git log --output x", "git log --outp=x", "git diff --ext-diff",
    "git log --show-signature", "git log --format=%G?", "git log --format='%-G?'",
    "git log --format=%\"G\"K", "git -P -c x=y log", "cd src && git status", "git branch x",
    "read PATH", "rg --pre x y", "rg --pre=x y", "rg -e -- --pre=x", "rg --regexp -- --pre=x",
    "rg -z x", "rg --hostname-bin=x y", "diff -l a b", "diff -5l a b", "file -C -m x", "file -z x",
    "sort -o x y", "sort x", "less x", "man ls", "tee x", "sed -i s/a/b/ x", "awk '{print}' x",
    "touch x", "mkdir x", "curl http://x", "ls --hide=x -Q --frobnicate", "/bin/ls", "./ls", "LS",
    "ｌs", "ls\u00a0-l", "timeout --frob 5 ls", "time -o x ls", "nice --frob ls", "nohup", "set -e",
    "read x", "exec 3>x",
)  # fmt: skip
rows(
    "ask:opaque",
    "ls\r\nls", "ls \x00", "ls \x1b[2J", "ls \ud800", "ls <> x", "ls (", "echo 'x", 'echo "x',
    "ls &&", "cat <<EOF\n$(ls)\nEOF", "cat <<EOF\n`ls`\nEOF", "cat <<'E'OF\nx\nEOF", "cat <<EOF\nx",
    "((x++))", "for ((;;)); do ls; done", "[[ x -eq y ]]", "[[ -v a[0] ]]", "[ x -eq 1 ]",
    "echo $((x))", "echo $[x]", "echo ${x@P}", "echo ${!x}", "echo ${x[0]}", "echo ${x:=y}{",
    "a[0]=1", "l\\\ns", "echo \\ ls", "for PATH in .; do ls; done", "(" * 100 + "ls" + ")" * 100,
    "ls;" * 500, "a|" * 8000 + "a", "ls " + "x" * 70_000, "cat <<A <<B\nx\nA\ny\nB",
    "echo `echo \\`ls\\``", "select x in a; do ls; done < <(ls", "ls &>", "}", "{rm,x}",
    "echo hi; } ls", "a=$b\\cat x",
)  # fmt: skip
rows(
    "ask:mode ask",
    "ls > x", "ls >> x", "ls >| x", "ls &> x", "ls &>> x", "ls >& x", "> x", "ls 2> x", "> x ls",
    "ls > x -l", "{ ls; } > x", "for f in a; do ls; done > x", "cat <<EOF > x\nhi\nEOF",
    "ls > 'a b'", "echo $(ls > x)", "f() { ls; } > x",
)  # fmt: skip
rows(
    "ask:outside",
    "ls > /etc/x", "ls > ../x", "cat < /etc/passwd", "echo $(< /etc/passwd)", "ls > away/x",
    "ls > $X", "ls > src/$X", "ls >& $X", "cat < ~/x", "cd $X; ls > x",
)  # fmt: skip

# --- invariants, in every mode ----------------------------------------------------------------
for any_mode in ("ask", "auto", "bypass"):
    rows(
        "deny:catastrophic",
        "rm -rf /", "rm -rf /*", "rm -fr ~", "rm -r $HOME", "rm -rf ~/*", "rm -rf ~/.*",
        'rm -rf "$HOME"/', "rm --recursive --force /", "rm --recurs /", "rm -rf /w/repo",
        "rm -rf .", "rm -rf *", "rm -rf ../repo", "rm -rf /w", "rm -rf /usr", "rm -rf x /",
        "rm -rf -- /", "r\\m -rf /", "$'rm' -rf /", "/bin/rm -rf /", "D=/; rm -rf $D",
        "sudo rm -rf /", "env rm -rf /", "timeout 5 rm -rf /", "bash -c 'rm -rf /'",
        "sudo sh -c 'rm -rf ~'", "eval 'rm -rf /'", "ls | xargs rm -rf /", "echo $(rm -rf /)",
        "f() { rm -rf /; }", "rm -rf / <> x", "mkfs.ext4 /dev/sda1", "mkfs x",
        "dd if=x of=/dev/sda", "sudo dd of=/dev/nvme0n1", "ls > /dev/sda", "cp x /dev/sda",
        "find / -delete", "chmod -R 777 /", "chown -R x ~",
        mode=any_mode,
    )  # fmt: skip
    rows(
        "ask:protected",
        "ls > .git/hooks/pre-commit", "ls > hooks/pre-commit", "ls > .git/config",
        "ls > .GIT/hooks/x", "cp x .git/hooks/x", "cd .git; cp x hooks/y", "ls >> ~/.bashrc",
        "ls >> dotfiles/bashrc", "tee ~/.zshrc", "cp x ~/.ssh/authorized_keys", "rm -rf .git",
        "rm -rf ~/.local", "cp x ~/.local/state/sidecar/x", "ls > ~/.local/state/sidecar/x",
        "ls > HEAD", "python -c 'open(\".git/hooks/x\")'", "sudo sh -c 'ls > .git/hooks/x'",
        'rm -rf "$X/"', 'rm -rf "$X"/*', "cd src && rm -rf *", "dd of=.git/hooks/x",
        "ln -sf x ~/.profile",
        mode=any_mode,
    )  # fmt: skip
rows("allow:builtin", "cat .git/config", "ls .git/hooks", mode="bypass")

# --- modes ------------------------------------------------------------------------------------
rows("allow:builtin", "ls", "git status | head", mode="plan")
rows(
    "deny:mode plan",
    "rm x", "ls > x", "ls; rm x", "pytest", "cat /etc/passwd", "ls (",
    mode="plan",
)  # fmt: skip
rows("deny:mode plan", "pytest", "ls > x", mode="plan", rules="allow: bash, edit, *")
rows(
    "allow:mode auto",
    "pytest", "rm x", "ls > x", "cat $X", "sed '/a/d' x", "/usr/bin/python x.py", "curl http://x",
    "make > out 2>&1",
    mode="auto",
)  # fmt: skip
rows(
    "ask:outside",
    "rm /tmp/x", "cat /etc/passwd", "cp x ..", "cp x ~/y", "ls > /tmp/x", "tar -C /tmp x",
    "x --file=/etc/y", "cd /etc; make",
    mode="auto",
)  # fmt: skip
rows("ask:opaque", "ls (", "ls \x00", mode="auto")
rows("ask:mode accept-edits", "rm x", "pytest > x", mode="accept-edits")
rows("allow:mode accept-edits", "ls > x", "echo hi > src/x", mode="accept-edits")
rows("allow:mode bypass", "rm x", "cp x /tmp/y", "ls > /tmp/x", "ls (", "$X", mode="bypass")

# --- rules ------------------------------------------------------------------------------------
rows(
    "deny:rule bash(sudo *)",
    "sudo ls", "ls; sudo rm x", "/usr/bin/sudo ls", "su\\do ls", "echo $(sudo ls)",
    "timeout 5 sudo ls", "env X=1 sudo ls", "xargs sudo ls", "bash -c 'sudo ls'", "watch 'sudo ls'",
    "eval sudo ls", "find . -exec sudo ls ;", "sudo ls (", "f() { sudo ls; }", "cat <(sudo ls)",
    "cat <<EOF\n$(sudo ls)\nEOF",
    mode="bypass", rules="deny: bash(sudo *)",
)  # fmt: skip
rows("ask:rule bash(sudo *)", "$X ls", "$(x) ls", mode="bypass", rules="deny: bash(sudo *)")
rows(
    "allow:mode bypass",
    "echo.exe sudo", "grep.x sudo x",
    mode="bypass", rules="deny: bash(sudo *)",
)  # fmt: skip
rows(
    "ask:rule bash(git push *)",
    "git push", "git -C x push -f", "git $X", "ls && git push origin main",
    "git -c a=b --no-pager push", "git > /dev/null push",
    mode="bypass", rules="ask: bash(git push *); allow: bash(git *)",
)  # fmt: skip
rows(
    "allow:rule bash(pytest *)",
    "pytest", "pytest -q x", "timeout 60 pytest", "X=1 pytest", "pytest $X", "bash -c 'pytest -q'",
    "pytest | head",
    rules="allow: bash(pytest *)",
)  # fmt: skip
rows(
    "ask:mode ask",
    "pytest-3 x", "./pytest", "pytest > x", "pytest; rm x", "pytest $(rm x)",
    "read PATH < x; pytest", "PATH=. pytest", "PYTHONPATH=. pytest", "LD_PRELOAD=x pytest",
    "pytest() { ls; }; pytest", "env pytest", "sudo pytest", "bash -c 'pytest | head'", "$X pytest",
    rules="allow: bash(pytest *)",
)  # fmt: skip
rows(
    "allow:rule bash(npm run test)",
    "npm run test", "npm run 'test'",
    rules="allow: bash(npm run test)",
)  # fmt: skip
rows("ask:mode ask", "npm run test x", "npm run", "npm run $X", rules="allow: bash(npm run test)")
rows("ask:opaque", "pytest (", rules="allow: bash(pytest *)")
rows("allow:rule bash", "rm x", "ls (", "sudo ls", "ls > x", rules="allow: bash")
rows("allow:rule *", "rm x", "ls > x", rules="allow: *")
rows("ask:protected", "ls > .git/hooks/x", rules="allow: *")
rows("deny:rule bash", "ls", "", "# x", "> x", rules="deny: bash; allow: bash")
rows(
    "deny:rule read(**/.env*)",
    "cat .env", "cat src/.env.local", "cat secret", "cat < .env", "cp .env x", "git show HEAD:.env",
    "python x.py --env=.env", "head -5 /w/lib/.env", "cat .ENV",
    mode="bypass", rules="deny: read(**/.env*)",
)  # fmt: skip
rows(
    "ask:rule read(**/.env*)",
    "ls -d .e*", "wc -l ./.e*",
    rules="deny: read(**/.env*)",
)  # fmt: skip
rows("allow:builtin", "ls -d *.py", "rg foo", "cat x", rules="deny: read(**/.env*)")
rows("ask:mode ask", "grep -r foo .", "rg --hidden foo", rules="deny: read(**/.env*)")
rows(
    "deny:rule edit(docs/**)",
    "ls > docs/x", "rm docs/x", "cp x src/docs/y", "sed -i s/a/b/ docs/x", "ls > notes/x",
    mode="bypass", rules="deny: edit(docs/**)",
)  # fmt: skip
rows("allow:builtin", "cat docs/x", rules="deny: edit(docs/**)")
rows("allow:rule edit(src/**)", "ls > src/x", "ls > src/a/b", rules="allow: edit(src/**)")
rows("ask:mode ask", "ls > x", "ls > lib/src/x", rules="allow: edit(src/**)")
rows("ask:outside", "ls > src/../../x", rules="allow: edit(src/**)")
rows("ask:rule read", "cat x", "cp x y", "cat < x", rules="ask: read")


@pytest.mark.parametrize(("expected", "mode", "rules", "commands"), TABLE)
def test_commands_get_the_verdicts_of_the_table(
    expected: str, mode: str, rules: str, commands: tuple[str, ...]
) -> None:
    wrong: list[object] = []
    for command in commands:
        verdict = judge(bash(command), mode, rules)
        deciding = {by for _, by in verdict.parts if by.startswith(verdict.decision)}
        if expected not in deciding or not expected.startswith(verdict.decision):
            wrong.append((command, verdict))
        assert verdict.reason
    assert wrong == []


@pytest.mark.parametrize(
    ("cwd", "command", "decision"),
    [
        ("/w/repo/src", "ls", "allow"),
        ("/w/repo/src", "cat ../x", "allow"),
        ("/w/repo/src", "cat ../../x", "ask"),
        ("/w/repo/src", "git status", "ask"),
        ("/w/lib", "git status", "allow"),
        ("/etc", "ls", "ask"),
        ("/etc", "cat /w/repo/x", "ask"),
        ("/etc", "pwd", "allow"),
    ],
)
def test_where_a_command_starts_counts(cwd: str, command: str, decision: str) -> None:
    assert judge(bash(command, cwd)).decision == decision


def test_git_is_read_only_in_a_project_that_is_trusted_and_asks_elsewhere() -> None:
    """`git status` runs what core.fsmonitor of the repository's own configuration says."""
    for command, trusted, decision in (
        ("git status", True, Decision.ALLOW),
        ("git status", False, Decision.ASK),
        ("ls && git log", False, Decision.ASK),
        ("ls", False, Decision.ALLOW),
    ):
        held_to = policy(trusted=trusted)
        assert decide(bash(command), held_to, None, realpath).decision == decision, command
    allowed = policy("ask", layer("allow: bash(git status *)"), trusted=False)
    assert decide(bash("git status"), allowed, None, realpath).decision == Decision.ALLOW


def test_a_line_that_is_continued_inside_a_word_hides_nothing() -> None:
    deny, ask = Decision.DENY, Decision.ASK
    for command, rules, mode, decision in (
        ("r\\\nm -rf /", "", "bypass", deny),
        ("dd of=/dev/s\\\nda", "", "bypass", deny),
        ("echo x > .git/ho\\\noks/pre-commit", "", "bypass", ask),
        ("echo x > .git/ho\\\noks/pre-commit", "allow: bash", "ask", ask),
        ("git pu\\\nsh", "deny: bash(git push *); allow: bash", "ask", deny),
        ("ls \\\n src", "allow: bash", "ask", Decision.ALLOW),
    ):
        assert judge(bash(command), mode, rules).decision == decision, command


def test_a_hook_can_be_stricter_but_opens_nothing_that_is_closed() -> None:
    allow, ask, deny = Decision.ALLOW, Decision.ASK, Decision.DENY
    assert judge(bash("rm x"), hook=allow).decision == allow
    assert judge(bash("ls"), hook=ask).decision == ask
    assert judge(bash("ls"), hook=deny).decision == deny
    assert judge(bash("ls"), "plan", hook=ask).decision == ask
    assert judge(bash("rm x"), "plan", hook=allow).decision == deny
    assert judge(bash("rm x"), rules="deny: bash(rm *)", hook=allow).decision == deny
    assert judge(bash("rm x"), rules="deny: bash(rm *)", hook=ask).decision == deny
    assert judge(bash("rm x"), rules="ask: bash(rm *)", hook=allow).decision == ask
    assert judge(bash("rm -rf /"), hook=allow).decision == deny
    assert judge(bash("ls > .git/hooks/x"), hook=allow).decision == ask
    assert judge(bash("rm x"), hook=ask).proposals == ()


def test_the_parts_of_a_command_are_shown_with_what_decided_each() -> None:
    verdict = judge(bash("cd src && git push -f > x"), rules="ask: bash(git push *)")
    assert verdict.parts == (
        ("cd src", "allow:builtin"),
        ("git push -f", "ask:rule bash(git push *)"),
        ("> x", "ask:mode ask"),
    )
    assert verdict.reason == "The rule bash(git push *) (user) says ask: git push -f"
    assert Path("x") not in verdict.outside
