"""Liveness, readiness, metrics. Before: ``app``. After: nothing."""

import orjson
from fastapi import APIRouter, Request, Response

from edge.routes.common import service_of

router = APIRouter()


@router.get("/healthz", response_model=None)
async def healthz() -> Response:
    """The process answers."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", response_model=None)
async def readyz(request: Request) -> Response:
    """This edge can take requests; 503 says what is missing."""
    service = service_of(request)
    missing = await service.ready()
    body = {"status": "ready" if missing is None else "not ready", "edge_id": service.settings.edge.id}
    if missing is not None:
        body["reason"] = missing
    return Response(orjson.dumps(body), 200 if missing is None else 503, media_type="application/json")


@router.get("/metrics", response_model=None)
async def metrics(request: Request) -> Response:
    """Prometheus exposition."""
    return Response(
        service_of(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
