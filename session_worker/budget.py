"""What the model calls of a session may use together: `limits.tokens` and `limits.cost_usd`. Pure.

Checked before each call, so the last one may go over by itself. What was used before a restart
counts, being on record; so do attempts that were discarded.
"""

from __future__ import annotations

from typing import Any

from session_worker.result import Usage
from session_worker.spec import Budget


def exhausted(budget: Budget, used: Usage) -> str | None:
    """Why no further call may be made; None while one may."""
    if budget.tokens is not None and used.total_tokens >= budget.tokens:
        return f"the session has used {used.total_tokens} of the {budget.tokens} tokens it may"
    if budget.cost_usd is None:
        return None
    if used.cost_usd is None:
        return 'limits.cost_usd cannot be kept: the price of the model is not known; set it as \
[prices."model"] in config.toml, or limit tokens'
    if used.cost_usd >= budget.cost_usd:
        return f"the session has cost {used.cost_usd:.4f} of the {budget.cost_usd} dollars it may"
    return None


def left(budget: Budget, used: Usage) -> dict[str, Any]:
    """What may still be used, as `limits` of another session; asked while nothing is exhausted."""
    limits: dict[str, Any] = {}
    if budget.tokens is not None:
        limits["tokens"] = budget.tokens - used.total_tokens
    if budget.cost_usd is not None and used.cost_usd is not None:
        limits["cost_usd"] = budget.cost_usd - used.cost_usd
    return limits
