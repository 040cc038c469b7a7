"""The environment that a session is created with: `--env`, ours, and a `.env` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from client.errors import UsageError

PROVIDER_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "MODEL_ID",
)


def session_env(
    pairs: Sequence[str], env_file: Path | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """`session.create`'s `env`: provider variables, everything in `env_file`, PATH, `pairs`.

    A pair `K=V` wins over our environment, which wins over the file; `K` alone means our own
    value of K. Empty means unset, so a pair `K=` drops what the others say. Our PATH goes along
    because the daemon's may be days old. Raises `UsageError`.
    """
    env = _read(env_file) if env_file else {}
    for name in (*env, *PROVIDER_VARIABLES, "PATH"):
        env[name] = environ.get(name) or env.get(name, "")
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not name or not (given or name in environ):
            raise UsageError(f"--env {pair!r} names no value", "--env NAME=VALUE")
        env[name] = value if given else environ[name]
    return {name: value for name, value in env.items() if value}


def find_env_file(named: Path | None, config_dir: Path) -> Path | None:
    """`--env-file`, which must exist, else `.env` beside the configuration, which may."""
    if named is not None:
        if not named.is_file():
            raise UsageError(f"there is no file {named}", "check --env-file")
        return named
    default = config_dir / ".env"
    return default if default.is_file() else None


def _read(env_file: Path) -> dict[str, str]:
    from dotenv import dotenv_values  # 40 ms that most commands need not pay

    try:
        values = dotenv_values(env_file, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {env_file}: {error}", "check --env-file") from error
    return {name: value or "" for name, value in values.items()}
