"""The answer of OpenAI Responses as one object: finished, or as far as it is.

The end mark carries the whole response, which is the answer. Before it, or where an end mark came without its items, the
items that are done make the output, as the SDK's accumulator has it. Pure. Before: ``openai_responses``. After: ``result``
and ``routes``.
"""

from collections.abc import Iterable
from typing import Any

from edge.dialects.reading import fields, index_of, load_as_sent, unicode_of
from schemas.events import Kind, LogEvent


def assemble(events: Iterable[LogEvent]) -> dict[str, Any]:
    """The response object, from the numbered events of a generation up to now; empty before the first of them.

    A generation that ended otherwise than its provider says is ``failed`` or ``cancelled``, with our code.
    """
    response: dict[str, Any] = {}
    done: dict[int, Any] = {}
    for event in events:
        if event.raw is None:
            continue
        said = fields(load_as_sent(event.raw))
        if isinstance(said.get("response"), dict):
            response = said["response"]
        elif said.get("type") == "response.output_item.done":
            done[index_of(said.get("output_index"))] = said.get("item")
        if event.kind is Kind.ERROR and event.error is not None and response.get("status") != "failed":
            error = {"code": event.error.code, "message": event.error.message}
            response = {**response, "status": "failed", "error": error}
        elif event.message_end is not None and event.message_end.finish_reason == "cancelled":
            response = {**response, "status": "cancelled"}
    if response and not response.get("output"):
        response = {**response, "output": [done[index] for index in sorted(done)]}
    whole: dict[str, Any] = unicode_of(response)
    return whole
