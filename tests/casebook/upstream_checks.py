"""One check per key of an ``upstream`` vector's ``expect``; a key without a check fails the test.

Each check takes what was seen and what is wanted. Before it: ``observed``. After it: ``form_upstream``.
"""

import json

from edge.sse import SseDecoder
from schemas.events import Kind, PartType

from .observed import strict_events
from .player import writes_of
from .upstream_attempts import billing, lineage, stalls, usage
from .upstream_ends import CLIENT_SEES, LOG, UPSTREAM_SEES
from .upstream_timing import TIMING
from .values import check_all, expand_text, within


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
        assert seen.result.status == 200
        assert (seen.speaks.result_text(json.loads(seen.result.body)) if wanted else "") == wanted


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
        found = seen.speaks.result_calls(json.loads(seen.result.body))
        assert found == [(c["id"], c["name"], seen.speaks.arguments(c["arguments"])) for c in wanted]


def tool_deltas(seen, wanted):
    """The argument fragments in order."""
    parts = [part for part in seen.parts if part.type is PartType.TOOL_CALL and part.text]
    assert [[part.tool_index, part.text] for part in parts] == wanted


def citations(seen, wanted):
    """The citation objects unchanged, in the log and in the result."""
    assert [json.loads(part.text) for part in seen.parts if part.type is PartType.CITATION] == wanted
    if seen.terminal.kind is Kind.MESSAGE_END:
        assert seen.speaks.result_citations(json.loads(seen.result.body)) == wanted


def unknown_counted(seen, wanted):
    """So many types that this version does not know were counted."""
    assert within(seen.unknown_counted, wanted)


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


def model(seen, wanted):
    """The model that served."""
    assert seen.row.served_model == seen.delivered.end.served_model == wanted


def attempts(seen, wanted):
    """So many requests reached the provider, and so many attempts are on record."""
    assert len(seen.player.requests) == wanted
    assert not any(request.unexpected for request in seen.player.requests)
    assert [record.attempt for record in seen.attempts] == list(range(wanted))
    assert len(seen.row.attempts) == wanted


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
    "citations": citations,
    "unknown_counted": unknown_counted,
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
