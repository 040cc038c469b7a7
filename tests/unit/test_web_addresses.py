"""Which addresses may be fetched from, and which URLs."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_worker.permissions.match import host
from session_worker.web.addresses import why_not_public
from session_worker.web.urls import may_be_private, problem, target
from sidecar.web_fetch_config import read_web_fetch


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "172.15.255.255",
        "172.32.0.0",
        "100.128.0.0",
        "223.255.255.255",
        "2606:2800:220:1:248:1893:25c8:1946",
        "2a00:1450:4001::1",
    ],
)
def test_the_public_internet_may_be_asked(address: str) -> None:
    assert why_not_public(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",  # the key service of a cloud
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",  # another's
        "169.254.169.254",  # of most
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.251",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "localhost",
        "",
    ],
)
def test_what_only_this_machine_can_reach_may_not(address: str) -> None:
    assert why_not_public(address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_is_public_that_python_knows_to_be_special(
    address: IPv4Address | IPv6Address,
) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved
    special |= address.is_link_local or address.is_loopback or address.is_unspecified
    assert not special or why_not_public(str(address))


@given(st.ip_addresses(v=4))
def test_no_disguise_makes_an_address_public(address: IPv4Address) -> None:
    number = int(address)
    disguises = (0xFFFF << 32, 0, 0x64FF9B << 96, 0xFFFF0000 << 32)
    for prefix in disguises:
        assert why_not_public(str(IPv6Address(prefix | number)))
    assert why_not_public(str(IPv6Address(0x2002 << 112 | number << 80)))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "HTTPS://Example.ORG:8443/a?b=c#d",
        "http://1.1.1.1/",
        "http://[2606:2800::1]:80/",
        "http://[::ffff:127.0.0.1]/",  # the address is judged when it is asked
        "https://xn--bcher-kva.example/ü?q=ä",
        "https://example.org/a@b",
        "https://example.org./",
    ],
)
def test_a_plain_url_may_be_fetched(url: str) -> None:
    assert problem(url) == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "only http"),
        ("ftp://example.org/", "only http"),
        ("javascript:alert(1)", "only http"),
        ("example.org", "only http"),
        ("", "only http"),
        ("http://", "no host"),
        ("http:///etc/passwd", "no host"),
        ("http://./", "no host"),
        ("http://me@example.org/", "user"),
        ("http://me:secret@example.org/", "user"),
        ("http://127.0.0.1#@example.org/", ""),
        ("http://example.org\\@127.0.0.1/", "user"),
        ("http://example.org\\.evil.example/", "no host"),
        ("http://bücher.example/", "no host"),
        ("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "no host"),
        ("http://127。0。0。1/", "no host"),
        ("http://example.org:99999/", "no usable URL"),
        ("http://example.org:http/", "no host"),
        ("http://[::1/", "no host"),
        ("http://[fe80::1%25eth0]/", "no host"),
        ("http://a b.example/", "blanks"),
        ("http://example.org/\r\nHost: evil", "blanks"),
        ("http://example.org/" + "a" * 8000, "longer than"),
    ],
)
def test_anything_else_is_refused_with_the_reason(url: str, why: str) -> None:
    assert why in problem(url) if why else host(url) == "127.0.0.1"


@given(st.text(st.sampled_from("htps:/@\\[]?#.%1a0x:é \t"), max_size=30))
def test_what_may_be_fetched_has_one_host_for_rules_and_sockets(rest: str) -> None:
    url = "http://" + rest
    if problem(url) == "":
        assert (host(url) or "").strip("[]") == (urlsplit(url).hostname or "").rstrip(".") != ""


def test_a_redirect_leads_to_a_whole_url() -> None:
    assert target("https://a.example/b/c", "../d?e=f g") == "https://a.example/d?e=f%20g"
    assert target("https://a.example/b", "//169.254.169.254/x") == "https://169.254.169.254/x"


def test_a_host_may_be_let_be_private_with_or_without_its_port() -> None:
    allowed = {"wiki.example.org", "127.0.0.1:8080", "[::1]:80"}
    yes = ("http://wiki.example.org:99/", "http://127.0.0.1:8080/a", "http://[::1]/")
    no = ("http://127.0.0.1/", "http://a.wiki.example.org/", "http://127.0.0.2:8080/")
    assert [may_be_private(url, allowed) for url in (*yes, *no)] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("hosts", ["127.0.0.1", ["*"], ["http://a"], ["A"], [1], ["a:b"], ["a/b"]])
def test_settings_name_such_hosts_one_by_one(hosts: object) -> None:
    with pytest.raises(ValueError, match="allow_private"):
        read_web_fetch({"web_fetch": {"allow_private": hosts}})
    with pytest.raises(ValueError, match="nothing but allow_private"):
        read_web_fetch({"web_fetch": {"allow": ["a"]}})
    fine = ("wiki.example.org", "127.0.0.1:8080", "[::1]:80")
    assert read_web_fetch({"web_fetch": {"allow_private": [*fine]}}).allow_private == fine
