"""What an ``upstream`` vector says of the client's end, the provider's end, and the log's records.

``invariants`` holds of every vector, whatever it names. Before it: ``observed``. After it: ``upstream_checks``.
"""

import json

from schemas.events import Kind

from .values import expand_text, within


def invariants(seen):
    """Promises 1, 2, 3 and 8: what was sent is the log's, live is replay, one terminal is last, JSON is unchanged."""
    assert not seen.log.refused
    assert [event.seq for event in seen.numbered] == list(range(len(seen.numbered)))
    seen.client.body.decode("utf-8")
    assert seen.row.flags == []
    if not seen.refused:
        emitted = [(e.raw_event or "", e.raw) for e in seen.numbered if e.kind is not Kind.MESSAGE_START]
        assert [(event.name, event.data) for event in seen.sent] == emitted
        assert [_seq(event) for event in seen.sent] == [e.seq for e in seen.numbered[1:]]
        assert _nothing_behind_the_terminal(seen.client)
        live = [event[:3] for event in seen.live.events if event.name != "heartbeat"]
        assert live == [event[:3] for event in seen.replay.events]
    assert [_seq(event) for event in seen.replay.events] == [event.seq for event in seen.numbered]


def _seq(event):
    return int(event.id.partition("-")[0])


def _nothing_behind_the_terminal(stream):
    last = stream.events[-1]
    return stream.body.endswith(b"data: " + last.data.rpartition("\n")[2].encode() + b"\n\n")


def status(seen, wanted):
    """The HTTP status."""
    assert seen.client.status == wanted


def status_in(seen, wanted):
    """One of these, or of these classes."""
    code = str(seen.client.status)
    assert any(code == str(w) or (str(w).endswith("xx") and code[0] == str(w)[0]) for w in wanted)


def content_type(seen, wanted):
    """Without its parameters."""
    assert seen.client.headers["content-type"].partition(";")[0].strip() == wanted


def headers(seen, wanted):
    """These values."""
    assert {name: seen.client.headers.get(name) for name in wanted} == wanted


def header_absent(seen, wanted):
    """None of these."""
    assert not set(wanted) & seen.client.headers.keys()


def message_starts(seen, wanted):
    """One natively; on the wire as many of the dialect's own, if it has any: ours is not shown there."""
    assert seen.order().count("message_start") == wanted
    if seen.speaks.start_event is None:
        assert b"message_start" not in seen.client.body
    else:
        assert [event.name for event in seen.client.events].count(seen.speaks.start_event) == wanted


def terminals(seen, wanted):
    """So many at the client."""
    assert len(seen.wire_terminals()) == wanted


def order(seen, wanted):
    """Kinds in the native dialect, tail included."""
    assert seen.order() == wanted


def heartbeats(seen, wanted):
    """So many comments that are heartbeats, and as many events natively where that reader saw the whole of it."""
    found = [comment for _, comment in seen.client.parser.comments if comment == "heartbeat"]
    assert within(len(found), wanted), len(found)


def heartbeat_carries_id(seen, wanted):
    """A native heartbeat has no id line; in this dialect it is a comment and cannot have one."""
    beats = [event for event in seen.live.events if event.name == "heartbeat"]
    assert beats
    assert any(event.id is not None for event in beats) is wanted


def done_markers(seen, wanted):
    """``[DONE]`` so often."""
    assert sum(event.data == "[DONE]" for event in seen.client.events) == wanted
    assert seen.client.body.count(b"[DONE]") == wanted


def well_framed(seen, wanted):
    """A strict parser gets exactly the events that the log holds (see ``invariants``), and nothing is left over."""
    emitted = [event.raw for event in seen.numbered if event.kind is not Kind.MESSAGE_START]
    assert ([event.data for event in seen.sent] == emitted) is wanted


def client_utf8(seen, wanted):
    """The bytes are UTF-8."""
    assert _is_utf8(seen.client.body) is wanted


def client_not_contains(seen, wanted):
    """None of these anywhere in the body, nor natively."""
    for text in wanted:
        assert expand_text(text).encode() not in seen.client.body, text
        assert expand_text(text).encode() not in seen.replay.body, text


def nothing_after_terminal(seen, wanted):
    """The terminal's frame ends the body."""
    assert _nothing_behind_the_terminal(seen.client) is wanted


def aborted_by_edge(seen, wanted):
    """Whether the edge itself closed an upstream connection before its end."""
    assert any(seen.player.aborted_by_edge) is wanted


def request_has(seen, wanted):
    """Every request to the provider has at least this."""
    for request in seen.player.requests:
        assert _subset(wanted, request.body), request.body


def request_headers(seen, wanted):
    """Every request to the provider has these headers."""
    for request in seen.player.requests:
        assert {name: request.headers.get(name.lower()) for name in wanted} == wanted


def log_deltas(seen, wanted):
    """So many records with content."""
    assert len(seen.contents()) == wanted


def log_message_starts(seen, wanted):
    """So many openings."""
    assert sum(event.kind is Kind.MESSAGE_START for event in seen.records) == wanted


def log_not_contains(seen, wanted):
    """None of these in any record's bytes."""
    for text in wanted:
        assert not any(expand_text(text).encode() in value for value in seen.values), text


def log_utf8(seen, wanted):
    """Every record decoded, so every string in it is UTF-8."""
    assert (
        all(_is_utf8((event.raw or "").encode("utf-8", "surrogatepass")) for event in seen.records) is wanted
    )


def max_record_bytes(seen, wanted):
    """Key and value of every record together."""
    assert max(seen.sizes) <= wanted


def lossless_or_marker(seen, wanted):
    """Lossless: what the client was sent of each event is in the log whole, parts joined (see ``invariants``)."""
    assert ([event.raw for event in seen.numbered[1:]] == [event.data for event in seen.sent]) is wanted


def terminal_published(seen, wanted):
    """The log has the terminal."""
    assert seen.terminal.is_terminal is wanted


def delivery_failures(seen, wanted):
    """Records that the broker refused."""
    assert seen.log.refused == wanted


def _is_utf8(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _subset(part, whole):
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and _subset(v, whole[k]) for k, v in part.items())
    return json.dumps(part) == json.dumps(whole)


CLIENT_SEES = {
    "status": status,
    "status_in": status_in,
    "content_type": content_type,
    "headers": headers,
    "header_absent": header_absent,
    "message_starts": message_starts,
    "terminals": terminals,
    "order": order,
    "heartbeats": heartbeats,
    "heartbeat_carries_id": heartbeat_carries_id,
    "done_markers": done_markers,
    "well_framed": well_framed,
    "valid_utf8": client_utf8,
    "not_contains": client_not_contains,
    "nothing_after_terminal": nothing_after_terminal,
}
UPSTREAM_SEES = {
    "aborted_by_edge": aborted_by_edge,
    "request_has": request_has,
    "request_headers": request_headers,
}
LOG = {
    "deltas": log_deltas,
    "message_starts": log_message_starts,
    "not_contains": log_not_contains,
    "valid_utf8": log_utf8,
    "max_record_bytes": max_record_bytes,
    "lossless_or_marker": lossless_or_marker,
    "terminal_published": terminal_published,
    "delivery_failures": delivery_failures,
}
