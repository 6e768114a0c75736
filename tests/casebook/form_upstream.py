"""Form ``upstream``: a provider is played, a client asks for a stream, and both ends, the log and the rows are looked at.

Every key of ``expect`` has a check of its own in ``upstream_checks``; a key without one fails the test. Besides, what
must hold of every generation (``upstream_ends.invariants``) is checked for each vector.
"""

from edge.dialects.spoken import dialect_of

from . import player_http2
from .observed import play
from .upstream_checks import CHECKS, check_all
from .upstream_ends import invariants


def unsupported(vector):
    """A dialect that is not spoken yet, a transport that the player does not have, a feature of the settings."""
    try:
        dialect_of(vector["dialect"])
    except KeyError:
        return f"dialect {vector['dialect']} is not spoken yet"
    if vector["settings"].get("continuation"):
        return "settings: a continuation is a generation of its own here (tests/unit/test_successor.py)"
    return player_http2.unsupported(vector)


async def run(vector, tmp_path, framing="as_given"):
    """Play it, then hold it to what the vector says."""
    seen = await play(vector, framing)
    invariants(seen)
    check_all(seen, vector["expect"], CHECKS)
