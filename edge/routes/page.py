"""The page at ``/``: a playground, what runs, and one generation's picture. Files as they are, without a build step.

The files are read once, at the first call; a name is looked up among them, so no path leads out of the folder. They are
asked for again with their ETag, which costs a head only, so that a page and its modules are always of one version. The
policy lets nothing in but these files and this edge's own answers. Before: ``app``. After: ``edge/page/``.
"""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(default_response_class=Response, include_in_schema=False)
FOLDER = Path(__file__).parents[1] / "page"
SHARED = (FOLDER.parent / "clients" / "js" / "src" / "sse.js",)
"""What the page has from the client library: one parser of server-sent events for both."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_ALLOWED = {
    "default-src": "'none'",
    **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'"),
    **dict.fromkeys(("base-uri", "form-action", "frame-ancestors", "trusted-types"), "'none'"),
    "require-trusted-types-for": "'script'",
}
POLICY = "; ".join(f"{name} {source}" for name, source in _ALLOWED.items())
"""Nothing but the page's own files and this edge's answers, in no frame, and no text may become markup or a script."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    media_type: str
    etag: str


@functools.cache
def assets() -> dict[str, Asset]:
    """The page's files by name."""
    found = {}
    for path in (*sorted(FOLDER.iterdir()), *SHARED):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            found[path.name] = Asset(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


@router.get("/")
async def index(request: Request) -> Response:
    """The page."""
    return _served(request, "index.html")


@router.get("/page/{name}")
async def asset(request: Request, name: str) -> Response:
    """One of its files."""
    return _served(request, name)


def _served(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "etag": found.etag}
    shown = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if any(tag in (found.etag, "*") for tag in shown):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)
