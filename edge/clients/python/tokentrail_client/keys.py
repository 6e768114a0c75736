"""Which Idempotency-Key a call has: one per call, also when the SDK above sends the call again.

Before: ``async_shell``. After: ``transport``.
"""

import hashlib
import threading
import uuid
from collections import OrderedDict

CALLS_MAX = 1000
KEYS_MAX = 16
"""Keys of failed calls that are the same in every byte; more of them at once are sent again under new keys."""
HEADER = "idempotency-key"
RETRIES = "x-stainless-retry-count"
"""How the SDKs mark a call that they send again."""


class Keys:
    """The keys of calls that failed, until the SDK sends them again. Bounded; the oldest are forgotten."""

    def __init__(self) -> None:
        self._failed: OrderedDict[bytes, list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def key(self, call: bytes, retries: str | None) -> str:
        """The key of a call (by its name): that of the same call before, where this one repeats it; else a new one."""
        if retries is not None and retries.isdigit() and int(retries) > 0:
            with self._lock:
                keys = self._failed.get(call)
                if keys:
                    return keys.pop()
        return str(uuid.uuid4())

    def failed(self, call: bytes, key: str) -> None:
        """This call failed: the SDK may send it again."""
        with self._lock:
            keys = self._failed.setdefault(call, [])
            keys.append(key)
            del keys[:-KEYS_MAX]
            while len(self._failed) > CALLS_MAX:
                self._failed.popitem(last=False)


def name_of(url: str, who: str, body: bytes) -> bytes:
    """What makes two calls the same: the address, whose key they carry, and every byte of the body."""
    return hashlib.sha256(f"{url}\n{who}\n".encode() + body).digest()
