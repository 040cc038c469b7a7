"""Whether a tool call may run: `verdict.decide` is the one entry, everything here is pure.

Never a sandbox: a command that may run can do what the user can. What it is for is that nothing
beyond reading inside the session's directories happens without somebody having said so.
"""
