"""One check per key of an ``upstream`` vector's ``expect``; a key without a check fails the test.

Each check takes what was seen and what is wanted. Before it: ``observed``. After it: ``form_upstream``.
"""

import json
from decimal import Decimal

from edge.sse import SseDecoder
from pipeline.billing import NOT_BILLED, lines_of
from pipeline.charging import COMMITTED_AT_COST, Markup
from schemas.events import Kind, PartType
from schemas.prices import PriceBook, entry_of
from schemas.records import Side

from .observed import strict_events
from .player import writes_of
from .upstream_ends import CLIENT_SEES, LOG, UPSTREAM_SEES
from .upstream_timing import TIMING
from .values import expand_text, within

BUCKETS = ("input", "cache_read", "cache_write", "output", "reasoning")
NOT_REPORTED = ("none", "estimated")
PRICES = {
    "model": "alpha",
    "from": "2000-01-01T00:00:00Z",
    "to": None,
    "input": "1.00",
    "output": "2.00",
}


def check_all(seen, expect, checks, what="expect"):
    """Every key of a part of ``expect``, each by its own check."""
    unknown = expect.keys() - checks.keys()
    assert not unknown, f"{what}: no check for {sorted(unknown)}"
    for key, wanted in expect.items():
        checks[key](seen, wanted)


def _sub(checks, what):
    return lambda seen, expect: check_all(seen, expect, checks, what)


def sse_events(seen, wanted):
    """The strict parser gets so many events, and the product's decoder gets the same before the stream's end."""
    for attempt, count in zip(seen.vector["attempts"], wanted, strict=True):
        strict = [(event.name or None, event.data) for event in strict_events(attempt)]
        assert len(strict) == count
        decoder = SseDecoder(1 << 30)
        for framing in seen.vector["framings"]:
            decoder, found = SseDecoder(1 << 30), []
            for _, data in writes_of(attempt, framing):
                found += decoder.feed(data)
            assert [(event.event, event.data) for event in found] == strict, framing


def sse_data(seen, wanted):
    """The data of those events."""
    found = [[event.data for event in strict_events(attempt)] for attempt in seen.vector["attempts"]]
    assert found[: len(wanted)] == wanted


def deltas(seen, wanted):
    """The text deltas one by one: in the log, at the client, and in the native dialect; joined in the result."""
    wanted = [expand_text(text) for text in wanted]
    assert seen.texts() == wanted
    assert seen.native_texts() == wanted
    assert seen.wire_texts() == wanted
    _result_text(seen, "".join(wanted))


def text(seen, wanted):
    """The text deltas joined."""
    for found in (seen.texts(), seen.native_texts(), seen.wire_texts()):
        assert "".join(found) == wanted
    _result_text(seen, wanted)


def _result_text(seen, wanted):
    if seen.terminal.kind is Kind.MESSAGE_END:
        message = json.loads(seen.result.body)["choices"][0]["message"] if wanted else {}
        assert seen.result.status == 200
        assert (message.get("content") or "") == wanted


def reasoning(seen, wanted):
    """The reasoning joined; no part of it among the text deltas."""
    parts = seen.texts(PartType.REASONING)
    assert "".join(parts) == wanted
    assert not set(parts) & set(seen.texts())


def choices(seen, wanted):
    """Text and finish of each choice, in the log and in the result."""
    result = json.loads(seen.result.body)["choices"]
    reasons = {choice.choice_index: choice for choice in seen.end.choices}
    assert seen.row.choices == seen.end.choices
    assert len(wanted) == len(reasons) == len(result)
    for choice in wanted:
        index = choice["index"]
        assert "".join(seen.texts(choice=index)) == choice["text"] == result[index]["message"]["content"]
        assert reasons[index].finish_reason == choice["finish_reason"]


def tool_calls(seen, wanted):
    """The calls as they can be put together from the log; whole ones stand in the result as well."""
    wanted = [call | {"arguments": expand_text(call["arguments"])} for call in wanted]
    assert seen.tool_calls() == wanted
    if seen.terminal.kind is Kind.MESSAGE_END:
        result = json.loads(seen.result.body)["choices"][0]["message"]["tool_calls"]
        found = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in result]
        assert found == [(c["id"], c["name"], c["arguments"]) for c in wanted]


def tool_deltas(seen, wanted):
    """The argument fragments in order."""
    parts = [part for part in seen.parts if part.type is PartType.TOOL_CALL and part.text]
    assert [[part.tool_index, part.text] for part in parts] == wanted


def terminal(seen, wanted):
    """Exactly one, last, and the same at the client, in the log, natively, and in the derived row."""
    kinds = [event.kind.value for event in seen.numbered if event.is_terminal]
    assert kinds == [wanted]
    assert seen.numbered[-1].is_terminal
    assert seen.wire_terminals() == [wanted]
    assert [name for name, _ in seen.native if name in ("message_end", "error")] == [wanted]
    assert seen.native[-1][0] == wanted
    assert (seen.row.terminal, seen.row.terminal_seq) == (wanted, seen.terminal.seq)


def _of_end(name):
    """A field that the terminal and the row both have."""

    def check(seen, wanted):
        assert getattr(seen.end, name) == wanted, name
        assert getattr(seen.row, name) == wanted, name

    return check


def filtered(seen, wanted):
    """Whether the provider's filter ended it."""
    assert (seen.row.finish_reason == "content_filter") is wanted


def error_code(seen, wanted):
    """In the log, natively, and in the row."""
    assert seen.end.code == wanted
    assert seen.row.error_code == wanted
    assert seen.native[-1][1]["code"] == wanted


def retryable(seen, wanted):
    """In the log and in the row; an answer that is no stream says it to the SDKs as well."""
    assert seen.end.retryable is wanted
    assert seen.row.retryable is wanted
    if seen.refused:
        assert seen.client.headers["x-should-retry"] == ("true" if wanted else "false")


def upstream_error(seen, wanted):
    """What is kept of the provider's words; a number is kept as its digits."""
    kept = seen.end.upstream_error
    assert not wanted.keys() - {"code", "type", "message", "raw"}
    for name, value in wanted.items():
        assert getattr(kept, name) == (str(value) if isinstance(value, int) else value), name


def usage(seen, wanted):
    """Of the delivered attempt: in its record, in the terminal, in the row; null: nobody claims a report."""
    for found in (seen.delivered.end.usage, seen.end.usage, seen.row.usage):
        _usage(found, wanted)


def _usage(found, wanted):
    if wanted is None:
        assert found is None or found.source in NOT_REPORTED
        return
    assert not wanted.keys() - set(BUCKETS)
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.source not in NOT_REPORTED


def model(seen, wanted):
    """The model that served."""
    assert seen.row.served_model == seen.delivered.end.served_model == wanted


def attempts(seen, wanted):
    """So many requests reached the provider, and so many attempts are on record."""
    assert len(seen.player.requests) == wanted
    assert not any(request.unexpected for request in seen.player.requests)
    assert [record.attempt for record in seen.attempts] == list(range(wanted))
    assert len(seen.row.attempts) == wanted


def lineage(seen, wanted):
    """Each attempt's own record."""
    assert len(seen.attempts) == len(wanted)
    for record, expect in zip(seen.attempts, wanted, strict=True):
        check_all(record.end, expect, LINEAGE, "lineage")


def _field(name):
    def check(end, wanted):
        assert getattr(end, name) == wanted, name

    return check


def _source(end):
    return "none" if end.usage is None else end.usage.source.value


def _usage_source(end, wanted):
    assert _source(end) == wanted


def _usage_source_in(end, wanted):
    assert _source(end) in wanted


def _content_delivered(end, wanted):
    assert (end.committed and end.content_events > 0) is wanted


LINEAGE = {
    "outcome": _field("outcome"),
    "error_code": _field("error_code"),
    "possibly_billed": _field("possibly_billed"),
    "usage": lambda end, wanted: _usage(end.usage, wanted),
    "usage_source": _usage_source,
    "usage_source_in": _usage_source_in,
    "content_delivered": _content_delivered,
}


def stalls(seen, wanted):
    """The rows of the generation, and what the one row says."""
    rows = seen.row.stalls
    assert not wanted.keys() - {"rows", "stall_count", "ended_by", "after_content", "gap_ms"}
    if "rows" in wanted:
        assert len(rows) == wanted["rows"]
    if "stall_count" in wanted:
        assert seen.row.timings.stall_count == wanted["stall_count"]
    if "ended_by" in wanted:
        assert rows[0].ended_by == wanted["ended_by"]
    if "after_content" in wanted:
        assert rows[0].content_index == wanted["after_content"]
    if "gap_ms" in wanted:
        assert within(rows[0].length_us / 1000, wanted["gap_ms"]), rows[0].length_us


def billing(seen, wanted):
    """The attempts that have a bill, and its status."""
    assert not wanted.keys() - {"rows", "status"}
    book = PriceBook([entry_of(PRICES)])
    bills = []
    for record in seen.attempts:
        lines = lines_of(record, book, Markup(), COMMITTED_AT_COST)
        cost = [line for line in lines if line.side is Side.PROVIDER_COST]
        assert all(line.amount is None or Decimal(line.amount) >= 0 for line in cost)
        if not any(NOT_BILLED in line.flags for line in cost):
            bills.append({line.status for line in cost})
    assert len(bills) == wanted["rows"]
    if "status" in wanted:
        assert bills == [{wanted["status"]}]


def one_of(seen, wanted):
    """Exactly one of the alternatives holds."""
    held = []
    for alternative in wanted:
        try:
            check_all(seen, alternative, CHECKS)
        except AssertionError:
            continue
        held.append(alternative)
    assert len(held) == 1, f"{len(held)} of the alternatives hold"


CHECKS = {
    "sse_events": sse_events,
    "sse_data": sse_data,
    "deltas": deltas,
    "text": text,
    "reasoning": reasoning,
    "choices": choices,
    "tool_calls": tool_calls,
    "tool_deltas": tool_deltas,
    "terminal": terminal,
    "finish_reason": _of_end("finish_reason"),
    "raw_finish_reason": _of_end("raw_finish_reason"),
    "filtered": filtered,
    "error_code": error_code,
    "retryable": retryable,
    "upstream_error": upstream_error,
    "usage": usage,
    "model": model,
    "upstream_id": _of_end("upstream_id"),
    "attempts": attempts,
    "lineage": lineage,
    "stalls": stalls,
    "billing": billing,
    "one_of": one_of,
    "client_sees": _sub(CLIENT_SEES, "client_sees"),
    "upstream_sees": _sub(UPSTREAM_SEES, "upstream_sees"),
    "log": _sub(LOG, "log"),
    "timing": _sub(TIMING, "timing"),
}
