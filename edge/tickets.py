"""Tickets: how somebody without an API key may see one generation, where no header can be set (``?ticket=``).

``<issued, Unix seconds>.<key id, base64url>.<signature>``: bound to the generation and to the key that asked for it, signed
as cursors are, by the generation's own secret, with another first word. Its age counts on the first connect; a later one is carried by the signed id of
the last event, which only a reader of this generation has, until the end plus the grace time. Whether the key is still
good is asked each time. Pure. Before: ``schemas.cursor``. After: ``routes.visitors``.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

TICKET_CHARS_MAX = 2_048
"""Far above what the id of a key makes of it."""
_TICKET = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{22})", re.ASCII)


class Ticket(NamedTuple):
    """What a good ticket says."""

    key_id: str
    issued_s: int


def issue(secret: bytes, generation_id: str, key_id: str, issued_s: int) -> str:
    """The text of a ticket."""
    name = urlsafe_b64encode(key_id.encode()).rstrip(b"=").decode()
    return f"{issued_s}.{name}.{_sign(secret, generation_id, key_id, issued_s)}"


def read(secret: bytes, generation_id: str, text: str) -> Ticket | None:
    """What a ticket says of this generation; None for a forged or garbled one, and for another generation's."""
    shown = _TICKET.fullmatch(text) if len(text) <= TICKET_CHARS_MAX else None
    if shown is None:
        return None
    try:
        key_id = urlsafe_b64decode(shown[2] + "=" * (-len(shown[2]) % 4)).decode()
    except ValueError:
        return None
    ticket = Ticket(key_id, int(shown[1]))
    expected = _sign(secret, generation_id, key_id, ticket.issued_s)
    return ticket if hmac.compare_digest(expected, shown[3]) else None


def _sign(secret: bytes, generation_id: str, key_id: str, issued_s: int) -> str:
    """22 characters. No cursor signs the same: a generation's id is never the word ticket."""
    mac = hmac.digest(secret, f"ticket|{generation_id}|{issued_s}|{key_id}".encode(), "sha256")
    return urlsafe_b64encode(mac[:16])[:22].decode()
