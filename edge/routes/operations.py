"""Liveness, readiness, metrics. Before: ``app``. After: nothing."""

import orjson
from fastapi import APIRouter, Request, Response

from edge.routes.common import service_of
from edge.routes.documented import Schema, answers, described, errors

router = APIRouter(default_response_class=Response)
_STATUS: Schema = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


@router.get("/healthz", responses=answers(_STATUS))
async def healthz() -> Response:
    """The process answers."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", responses=answers(_STATUS) | errors(503, schema=_STATUS))
async def readyz(request: Request) -> Response:
    """This edge can take requests; 503 says what is missing."""
    service = service_of(request)
    missing = await service.ready()
    body = {"status": "ready" if missing is None else "not ready", "edge_id": service.settings.edge.id}
    if missing is not None:
        body["reason"] = missing
    return Response(orjson.dumps(body), 200 if missing is None else 503, media_type="application/json")


@router.get("/metrics", responses={200: described(200, {"type": "string"}, media_type="text/plain")})
async def metrics(request: Request) -> Response:
    """Prometheus exposition."""
    return Response(
        service_of(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
