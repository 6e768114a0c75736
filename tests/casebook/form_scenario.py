"""Form ``scenario``: what can be driven from a vector's own fields; what is only told in sentences has a test by hand.

A vector with ``data`` names a dialect. One that is spoken here is played like an ``upstream`` vector; one that is not must be
refused when the configuration is read, as ``given`` says of a gateway without it.
"""

import pytest
from pydantic import ValidationError

from edge.dialects.spoken import dialect_of
from schemas.settings import Settings

from . import form_upstream, player_http2

PLAYED = {"framings": ["as_given"], "policy": False, "settings": {}}


def unsupported(vector):
    """Sentences alone, or a transport that the player does not have."""
    data = vector.get("data", {})
    if "dialect" not in data:
        return "told in sentences: one test by hand each"
    if not _is_spoken(data["dialect"]):
        return None
    if "attempts" not in data:
        return "its data is no upstream"
    return player_http2.unsupported(data)


async def run(vector, tmp_path):
    """Play it, or see it refused."""
    data = vector["data"]
    if _is_spoken(data["dialect"]):
        await form_upstream.run({**vector, **PLAYED, **data}, tmp_path)
        return
    provider = {"dialect": data["dialect"], "base_url": "http://127.0.0.1:1/v1"}
    with pytest.raises(ValidationError, match=data["dialect"]):
        Settings(providers={"unspoken": provider})


def _is_spoken(dialect):
    try:
        dialect_of(dialect)
    except KeyError:
        return False
    return True
