"""Which addresses a fetch may connect to: those of the public internet, and no others. Pure.

An agent that reads a page somebody else wrote may be told to look at what only this machine can
reach: a router, a database, the key service of a cloud (tools-and-ux.md §1.3).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

_V4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "of this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "a carrier's own"),
        ("127.0.0.0/8", "this machine's own"),
        ("168.63.129.16/32", "a cloud's own"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
"""IANA's special addresses, without those that anybody may reach; and Azure's service address."""
_V6_GLOBAL = IPv6Network("2000::/3")
"""Nothing else has been given out: not loopback, not what maps, translates or hides IPv4."""
_V6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "an IPv4 address in disguise"),
        ("3fff::/20", "reserved"),
    )
)


def why_not_public(address: str) -> str | None:
    """What keeps an address, as the system writes it, from being fetched from; None if nothing."""
    try:
        ip = ip_address(address)
    except ValueError:
        return "no address"
    if isinstance(ip, IPv4Address):
        return next((what for network, what in _V4 if ip in network), None)
    if ip not in _V6_GLOBAL:
        return "not of the public internet"
    return next((what for network, what in _V6 if ip in network), None)
