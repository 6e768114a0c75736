"""``Prefer: respond-async``: a generation begins, and its call is answered at once with where to find it.

The log has acknowledged the opening by then, so every edge can be asked. It is the background of any dialect: it runs on
whoever listens, unless the call says otherwise, and only the bound on a whole generation ends it. The links are paths:
what the client calls this edge is the client's to know. Before: ``dialects``. After: ``generations``, which the links
lead to.
"""

from collections.abc import Iterable, Mapping

import orjson
from fastapi import Response

RESPOND_ASYNC = "respond-async"


def wants_later(preferences: Iterable[str]) -> bool:
    """Whether a call's ``Prefer`` headers ask so (RFC 7240: tokens in any case, with parameters or without)."""
    tokens = (part.partition(";")[0] for value in preferences for part in value.split(","))
    return any(token.partition("=")[0].strip().lower() == RESPOND_ASYNC for token in tokens)


def begun(generation_id: str, request_id: str, ticket: Mapping[str, str | float]) -> Response:
    """202: the generation's id, the paths of its events, its result and its end, and a ticket for where no key is."""
    path = f"/v1/generations/{generation_id}"
    body = {
        "generation_id": generation_id,
        "events_url": f"{path}/events",
        "result_url": f"{path}/result",
        "cancel_url": f"{path}/cancel",
        **ticket,
    }
    headers = {
        "cache-control": "no-store",
        "preference-applied": RESPOND_ASYNC,
        "x-generation-id": generation_id,
        "x-request-id": request_id,
    }
    return Response(orjson.dumps(body), 202, headers, media_type="application/json")
