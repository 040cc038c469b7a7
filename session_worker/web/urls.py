"""URLs that may be fetched: such that every reader takes them for the same. Pure.

The host is read by `permissions.match.host`, as the rules read it, and compared with what the HTTP
library makes of the URL: a rule about one host must not let another be asked.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urljoin

from yarl import URL

from session_worker.permissions.match import host
from sidecar.protocol.bounds import WEB_URL_CHARS

SCHEMES = ("http://", "https://")


def problem(url: str) -> str:
    """Why `url` is not fetched; empty if it may be."""
    if len(url) > WEB_URL_CHARS:
        return f"the URL is longer than {WEB_URL_CHARS} characters"
    if not url.isprintable() or " " in url:
        return "a URL has neither blanks nor control characters"
    if not url.lower().startswith(SCHEMES):
        return "only http:// and https:// URLs can be fetched"
    authority = url.split("://", 1)[1].replace("?", "/").replace("#", "/").split("/", 1)[0]
    if "@" in authority:
        return "a URL with a user or a password is not fetched"
    if not (name := host(url)):
        return (
            f"{authority[:100]!r} is no host and port in letters, digits, dots and hyphens "
            "(write other letters as xn--…)"
        )
    try:
        parsed = URL(url)
        read = parsed.raw_host or ""
        parsed.port  # noqa: B018 - raises if it is none
    except ValueError as error:
        return f"no usable URL: {error}"
    return "" if _same(name, read) else f"{authority[:100]!r} is not the same host to every reader"


def _same(name: str, read: str) -> bool:
    if not name.startswith("["):
        return name == read.lower().rstrip(".")
    try:
        return ip_address(name[1:-1]) == ip_address(read)
    except ValueError:
        return False


def target(url: str, location: str) -> str:
    """Where a redirect leads. Raises ValueError."""
    return urljoin(url, location.strip().replace(" ", "%20"))


def may_be_private(url: str, allowed: Collection[str]) -> bool:
    """Whether the settings let a host, or that port of it, be anywhere."""
    name, port = host(url), URL(url).port
    return name in allowed or f"{name}:{port}" in allowed
