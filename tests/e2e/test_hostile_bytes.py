"""Bytes that nobody should send, on raw sockets, in all three dialects: each is answered, and none is a bug or a log line."""

import asyncio
import json
import logging

import pytest
import pytest_asyncio

from edge.dialects import PASSED_ON_CHARS_MAX
from edge.driving.opening import NAME_CHARS_MAX
from tests.support.dialects import KEY, QUICK, world

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "PROMPT"}],
    "input": "PROMPT",
    "max_tokens": 5,
    "simulate": QUICK | {"tokens": 2},
}
TAKEN, REFUSED = 200, 400
WITHIN_S = 20


def body(old=b'"PROMPT"', new=b'"hi"', **fields):
    """Give a call's body in which some bytes stand for others."""
    return json.dumps(BODY | fields).encode().replace(old, new)


def deep(levels):
    """Give a call's body with a value of so many levels."""
    return body(b'"max_tokens": 5', b'"x": ' + b"[" * levels + b"]" * levels)


BODIES = {
    "10,000 levels": (deep(10_000), REFUSED),
    "1,000 levels": (deep(1_000), REFUSED),
    "190 levels": (deep(190), TAKEN),
    "10,000 levels without an end": (b'{"model": ' + b'{"a":' * 10_000, REFUSED),
    "1e999": (body(b": 5", b": 1e999"), REFUSED),
    "-1e999": (body(b": 5", b": -1e999"), REFUSED),
    "1e-999": (body(b": 5", b": 1e-999"), TAKEN),
    "5,000 digits": (body(b": 5", b": " + b"9" * 5_000), REFUSED),
    "25 digits": (body(b": 5", b": " + b"9" * 25), TAKEN),
    "NaN": (body(b": 5", b": NaN"), REFUSED),
    "a key twice": (body(b'"model": "m"', b'"model": 1, "model": "m"'), TAKEN),
    "stream twice": (body(b'"max_tokens": 5', b'"stream": 1, "stream": false'), TAKEN),
    "no UTF-8": (body(new=b'"\xff\xfe"'), REFUSED),
    "an overlong slash": (body(new=b'"\xc0\xaf"'), REFUSED),
    "half a pair in UTF-8": (body(new=b'"\xed\xa0\x80"'), REFUSED),
    "half a pair escaped": (body(new=b'"\\ud800"'), REFUSED),
    "the other half": (body(new=b'"x\\udc00"'), REFUSED),
    "a whole pair": (body(new=b'"\\ud83d\\ude00"'), TAKEN),
    "NUL": (body(new=b'"\\u0000"', model="a\0b"), TAKEN),
    "a line end in the model": (body(model="m\r\nx-evil: 1"), TAKEN),
    "a model without end": (body(model="m" * 600), REFUSED),
    "a stop rule of 3 MB": (body(stop=["x" * 3_000_000], stop_sequences=["x" * 3_000_000]), TAKEN),
    "a byte-order mark": (b"\xef\xbb\xbf" + body(), REFUSED),
    "UTF-16": (body().decode().encode("utf-16"), REFUSED),
    "two values": (body() * 2, REFUSED),
    "nothing": (b"", REFUSED),
    "a list": (b"[]", REFUSED),
}
VALUES = {
    "not ASCII": b"\xff\xfe\x80",
    "UTF-8": "😀".encode(),
    "CR": b"a\rx-evil: 1",
    "LF": b"a\nx-evil: 1",
    "CRLF": b"a\r\nx-evil: 1",
    "a fold": b"a\r\n x-evil: 1",
    "NUL": b"a\0b",
    "an escape": b"\x1b[2J",
    "60,000": b"a" * 60_000,
    "70,000": b"a" * 70_000,
    "5,000 digits": b"9" * 5_000,
}
NAMES = (
    b"x-request-id", b"x-previous-generation-id", b"x-lineage-kind", b"x-client-id", b"x-prompt-version",
    b"x-risk-tier", b"traceparent",
)  # fmt: skip
IDS = (
    b"..", b"%2e%2e", b"..%2f..%2fetc", b"%00", b"a%00b", b"%ff%fe", b"%ed%a0%80", b"%F0%9F%98%80", b"%zz", b"%",
    b"%0d%0ax-evil:1", b"x" * 30_000, b"'%20OR%201=1--", b"ffffffff-ffff-7fff-bfff-ffffffffffff",
)  # fmt: skip
ROUTES = (
    ("GET", b"/v1/generations/%b/events"), ("GET", b"/v1/generations/%b"), ("GET", b"/v1/generations/%b/result"),
    ("POST", b"/v1/cancel/%b"), ("POST", b"/v1/generations/%b/cancel"), ("POST", b"/v1/generations/%b/tickets"),
    ("POST", b"/v1/generations/%b/ack"), ("POST", b"/v1/generations/%b/tools/c"), ("GET", b"/v1/%b"),
)  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address():
    async with world() as two:
        host, port = two.urls[0].removeprefix("http://").split(":")
        yield host, int(port)


@pytest.fixture(autouse=True)
def no_line(caplog):
    """Nothing here is worth a line of ours, let alone a traceback."""
    caplog.set_level(logging.ERROR, "uvicorn.error")  # as the edge's own server has it
    yield
    assert [record.getMessage() for record in caplog.records] == []


async def said(reader, writer):
    """Give all that comes until the server closes; it may close on what it has not read, which is a reset."""
    answer = b""
    try:
        async with asyncio.timeout(WITHIN_S):
            while data := await reader.read(1 << 16):
                answer += data
    except ConnectionError:
        assert answer
    finally:
        writer.close()
    return answer


async def sent(address, method, path, data=b"", headers=()):
    """Send a request in one go; the status, the lines of the head, and the body."""
    reader, writer = await asyncio.open_connection(*address, limit=1 << 24)
    fields = [
        (b"host", b"x"),
        (b"authorization", f"Bearer {KEY}".encode()),
        (b"content-length", b"%d" % len(data)),
        (b"connection", b"close"),
        *headers,
    ]
    head = b"".join(b"%b: %b\r\n" % field for field in fields)
    writer.write(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method.encode(), path, head, data))
    answer = await said(reader, writer)
    head, _, content = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert not [line for line in lines if b"\r" in line or b"\n" in line or line.startswith(b"x-evil")]
    return int(lines[0].split()[1]), lines, content


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_is_taken_or_refused(address, dialect, name):
    """Whatever the body holds, it is answered by what it is, in the dialect's shape; nothing of it is a failure of ours."""
    data, wanted = BODIES[name]
    status, _, content = await sent(address, "POST", PATHS[dialect].encode(), data)
    assert status == wanted, content[:300]
    if wanted == REFUSED:
        assert b'"bad_request"' in content
        assert (b'"type":"error"' in content) == (dialect == "anthropic.messages")


@pytest.mark.parametrize("value", VALUES)
async def test_a_name_in_a_head_stays_one(address, value):
    """No header of a call makes a line of the answer's head; one that is longer than a name is refused."""
    for name in NAMES:
        status, lines, content = await sent(
            address, "POST", PATHS["openai.chat"].encode(), body(), [(name, VALUES[value])]
        )
        assert status in ({200} if len(VALUES[value]) < NAME_CHARS_MAX else {400, 431}) | {400}, content[:300]
        assert all(len(line) < NAME_CHARS_MAX + 20 for line in lines)


@pytest.mark.parametrize(("characters", "status"), [(NAME_CHARS_MAX, 200), (NAME_CHARS_MAX + 1, 400)])
async def test_the_edge_of_a_name(address, characters, status):
    """A name of as many characters as one may have goes through all of it, at each way in."""
    named = [(b"x-request-id", b"a" * characters)]
    answer, lines, _ = await sent(address, "POST", b"/v1/responses", body(), named)
    assert answer == status
    assert (b"x-request-id: " + b"a" * characters in lines) == (status == TAKEN)
    _, lines, _ = await sent(address, "POST", b"/v1/responses", body())
    made = next(line.partition(b": ")[2] for line in lines if line.startswith(b"x-generation-id"))
    assert (await sent(address, "GET", b"/v1/generations/%b/events" % made, headers=named))[0] == status


@pytest.mark.parametrize(("dialect", "name"), [("openai.chat", b"openai-beta"), ("anthropic.messages", b"anthropic-beta")])  # fmt: skip
async def test_a_provider_is_passed_no_head_that_it_would_hang_up_on(address, dialect, name):
    """What goes on to a provider is bounded, so that no client makes one look ill."""
    for characters, status in ((PASSED_ON_CHARS_MAX, 200), (PASSED_ON_CHARS_MAX + 1, 400)):
        headers = [(name, b"a" * characters)]
        assert (await sent(address, "POST", PATHS[dialect].encode(), body(), headers))[0] == status


@pytest.mark.parametrize("one", IDS)
async def test_an_id_is_no_path(address, one):
    """What stands in an id's place is an id that nobody has, or no path at all."""
    for method, path in ROUTES:
        data = b'{"status": "failed"}' if method == "POST" else b""
        status, _, content = await sent(address, method, path % one, data)
        assert status in {404, 405}, (path, content[:300])


@pytest.mark.parametrize(
    "line",
    [
        b"GET /\r\n",
        b"GET / HTTP/9.9\r\n",
        b"\x16\x03\x01\r\n",
        b"G\xc3\x89T / HTTP/1.1\r\n",
    ],
)
async def test_what_is_no_request_fills_no_log(address, line):
    """Anybody can send it, without a key: it is answered or cut, and not a word is written."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(line + b"\r\n")
    assert await said(reader, writer)
