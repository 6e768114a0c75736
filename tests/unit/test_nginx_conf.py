"""The configuration for nginx agrees with what edges do, and its document with it."""

import re

from schemas.settings import Settings
from tests.support.sources import ROOT

CONF = (ROOT / "compose" / "nginx" / "tokentrail.conf").read_text()
DOCUMENT = (ROOT / "docs" / "proxy.md").read_text()
SAID = re.sub(r"#.*", "", CONF)
DIRECTIVES = dict(re.findall(r"^\s*([a-z0-9_]+)\s+([^;{]+);", SAID, re.MULTILINE))
EXPLAINED_BY_NGINX = {
    "listen", "server", "server_name", "ssl_certificate", "ssl_certificate_key", "ssl_protocols", "access_log",
    "proxy_set_header", "proxy_pass", "return",
}  # fmt: skip
"""What every server has."""
UNITS = {"s": 1, "k": 1 << 10, "m": 1 << 20}


def value_of(name):
    """Give a time in seconds or a size in bytes."""
    number, unit = re.fullmatch(r"(\d+)([skm])", DIRECTIVES[name]).groups()
    return int(number) * UNITS[unit]


def test_its_bounds_are_the_edges():
    """A body is refused, and awaited, as an edge does it; silence between heartbeats is no fault; no call meets a close."""
    settings = Settings()
    assert value_of("client_max_body_size") == settings.limit.body_bytes
    assert value_of("client_body_timeout") == settings.limit.body_idle_s
    assert value_of("proxy_read_timeout") >= 3600
    assert value_of("proxy_read_timeout") > max(settings.timeout.generation_s, settings.stream.heartbeat_s)
    closes_after_s = int(
        re.search(r"timeout_keep_alive=(\d+)", (ROOT / "edge" / "app.py").read_text()).group(1)
    )
    assert value_of("keepalive_timeout") < closes_after_s


def test_nothing_is_held_or_repeated():
    """What makes events wait is off, a reader that left is told of, and no POST is sent twice."""
    off = ("proxy_buffering", "proxy_cache", "gzip", "proxy_ignore_client_abort")
    assert {name: DIRECTIVES[name] for name in off} == dict.fromkeys(off, "off")
    assert DIRECTIVES["proxy_next_upstream"].split() == ["error", "timeout"]
    assert "$request " not in SAID
    assert "$args" not in SAID
    assert "$request_uri" not in SAID


def test_each_line_has_its_reason():
    """Every directive that is there stands in the document, and the document names none that is not."""
    named = set(re.findall(r"`([a-z0-9_]+)[ `]", "".join(re.findall(r"^\|(.*?)\|", DOCUMENT, re.MULTILINE))))
    assert DIRECTIVES.keys() - EXPLAINED_BY_NGINX - named == set()
    assert named - set(re.findall(r"[a-z0-9_]+", SAID)) == set()
