"""A provider that says our key: in a stream, an error, a head; none of it reaches a client, a record, a metric or a log."""

import asyncio
import io
import json
import logging
from contextlib import asynccontextmanager

import httpx
import pytest
import structlog

from edge.app import configure_logs
from edge.log.memory import MemoryLog
from edge.provider.masking import MASKED, NO_MASK, Mask
from edge.sse import SseEvent
from schemas.settings import ApiKey, Settings
from tests.casebook.edges import running_edge, wall_ms
from tests.support.dialects import HEADERS, KEY_SHA256

KEY = "sk-of-the/platform+7f3a"
DIALECTS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}
ESCAPED = "".join(f"\\u{ord(letter):04X}" for letter in KEY)


def masked(data, event=None, key=KEY):
    """Give what is left of one event."""
    (left,) = Mask(key).events([SseEvent(event, data, None, None)])
    return left


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        ESCAPED,
        KEY.replace("/", "\\/"),
        KEY.replace("+", "\\u002b"),
        KEY.replace("+", "\\u002B").replace("s", "\\u0073"),
    ],
)
def test_however_json_writes_it(written):
    """A key is found as it is and as JSON may escape it; the event stays JSON, and says the rest as before."""
    left = masked(f'{{"a": "x \\\\{written} \\n {written}"}}', event=f"e-{KEY}")
    assert json.loads(left.data) == {"a": f"x \\{MASKED} \n {MASKED}"}
    assert left.event == f"e-{MASKED}"


@pytest.mark.parametrize(
    "data", ['{"a": "\\nkey-12345 \\\\u006e"}', '{"a": "\\t\\"é\\u00e9\\u4f60"}', "[DONE]"]
)
def test_what_is_no_key_stays(data):
    """An escape whose letter is the key's first one is none of it; every other event is left byte for byte."""
    assert masked(data, key="nkey-12345").data == data


@pytest.mark.parametrize("key", ["EMPTY", "anything", "sk-1", None, ""])
def test_a_placeholder_stays_in_answers(key):
    """A word and a short key are no secret, and an answer may hold them; a refusal loses even those."""
    assert masked(f'{{"a": "{key}"}}', key=key).data == f'{{"a": "{key}"}}'
    assert Mask(key).body(b"no: %b \xff" % (key or "").encode()) == (
        b"no: [key] \xff" if key else b"no:  \xff"
    )


def test_without_a_key_nothing_is_looked_for():
    """A provider without a key has its events as they are."""
    events = [SseEvent(None, KEY, None, None)]
    assert NO_MASK.events(events) is events


def sse(*events):
    """Give an answer that streams these bytes, each a chunk of its own."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunks
        + b"0\r\n\r\n"
    )


def whole(status, body, **headers):
    """Give an answer in one piece."""
    told = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{told}\r\n{body}".encode()


DELTA = {
    "openai.chat": b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}], "%b": 1}\n\n',
    "openai.responses": b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", '
    b'"item_id": "%b", "output_index": 0, "content_index": 0, "delta": "%b"}\n\n',
    "anthropic.messages": b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, '
    b'"delta": {"type": "text_delta", "text": "%b"}, "x": "%b"}\n\n',
}
FAILED = (
    b'event: error\ndata: {"type": "error", "error": {"type": "%b", "code": "%b", "message": "no: %b"}}\n\n'
)
K = KEY.encode()


def answers_of(dialect):
    """Give what a provider of a dialect may say with our key in it."""
    delta, said = DELTA[dialect], f'{{"error": {{"message": "Bearer {KEY}", "code": "{KEY}"}}}}'
    inside = delta % (K, K)
    return {
        "a delta": sse(inside),
        "a delta in two reads": sse(inside[: inside.index(K) + 9], inside[inside.index(K) + 9 :]),
        "a delta that escapes": sse(delta % (ESCAPED.encode(), ESCAPED.encode())),
        "many at once": sse(inside * 3 + b": " + K + b"\n\nid: " + K + b"\nretry: 1\n" + inside),
        "an event's name": sse(b"event: " + K + b"\ndata: {}\n\n" + inside),
        "no JSON": sse(b"data: {" + K + b"\n\n"),
        "an error behind content": sse(inside, FAILED % (K, K, K)),
        "an error at once": sse(FAILED % (K, K, K)),
        "an end without its frame": sse(inside, inside[:-2]),
        "401": whole("401 Unauthorized", said, content_type="application/json", x_echo=KEY),
        "500 in text": whole("500 " + KEY, f"oops {KEY}", content_type="text/plain", set_cookie=f"{KEY}=1"),
        "a long body": whole("400 Bad", "x" * 65_530 + KEY, content_type="text/plain"),
        "JSON for a stream": whole("200 OK", said, content_type="application/json", retry_after=KEY),
        "a head that is none": f"HTTP/1.1 {KEY}\r\n\r\n".encode(),
        "no head": KEY.encode() + b"\r\n\r\n",
        "an encoding": whole("200 OK", "x", content_type="text/event-stream", content_encoding=KEY),
        "a length": whole("200 OK", "x", content_type="text/event-stream").replace(b": 1", b": " + K),
        "a chunk": sse(inside).replace(b"0\r\n\r\n", K + b"\r\n"),
    }


@asynccontextmanager
async def provider_of(answers):
    """A server that gives a call the answer of its model's name, and closes; its port."""

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        asked = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
        writer.write(answers[asked["model"]])
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def written():
    """What is logged while a test runs, by us and by every library, at the strictest and at the loosest level."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = list(root.handlers), root.level
    root.handlers = []
    configure_logs(stream)
    root.setLevel(logging.INFO)
    yield stream
    root.handlers, root.level = before, level
    structlog.reset_defaults()


PARTS = (KEY[:12], KEY[-12:], ESCAPED[:48])
"""What would tell the key: a half that was cut is as bad."""


def settings_for(dialect, port):
    """Give an edge's settings in front of a provider of one dialect."""
    base_url = f"http://127.0.0.1:{port}" + ("" if dialect == "anthropic.messages" else "/v1")
    return Settings(
        edge={"drain_s": 0},
        retry={"max_attempts": 2, "backoff_ms": 1},
        secrets={"cursor": ["s"]},
        providers={"p": {"base_url": base_url, "dialect": dialect, "api_key": KEY}},
        breaker={"failures": 1000},
        default_route=[{"provider": "p"}],
        keys=[ApiKey(id="key-1", tenant="acme", sha256=KEY_SHA256)],
    )


async def all_that_is_told(http, url, path, model):
    """Call in both ways and read each generation in every way; the text of all answers with their heads."""
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    told = []
    for stream in (True, False):
        told.append(await http.post(url + path, json=asked | {"stream": stream}))
        at = f"{url}/v1/generations/{told[-1].headers['x-generation-id']}"
        told += [await http.get(at + part) for part in ("", "/events", "/result")]
    return "".join(f"{answer.headers} {answer.text}" for answer in told)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nobody_is_told_the_key(dialect, written):
    """What a provider says of our key, wherever it says it, is on no wire, in no record, metric or log line."""
    log, answers = MemoryLog(wall_ms), answers_of(dialect)
    async with provider_of(answers) as port, running_edge(settings_for(dialect, port), log) as edge:
        url = f"http://127.0.0.1:{edge.port}"
        async with httpx.AsyncClient(headers=HEADERS, timeout=20) as http:
            wires = {name: await all_that_is_told(http, url, DIALECTS[dialect], name) for name in answers}
            metrics = (await http.get(f"{url}/metrics")).text
    kept = b"".join(record[3] for _, record in log.all_records()).decode(errors="replace")
    places = wires | {"the records": kept, "the metrics": metrics, "the log": written.getvalue()}
    assert not [(name, part) for name, place in places.items() for part in PARTS if part in place]
    mentions = {
        "a delta",
        "a delta in two reads",
        "a delta that escapes",
        "many at once",
        "401",
        "500 in text",
    }
    assert not [name for name in mentions if MASKED not in wires[name]]
