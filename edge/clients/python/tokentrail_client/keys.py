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
        self._failed: OrderedDict[tuple[str, bytes], list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def key(self, url: str, body: bytes, retries: str | None) -> str:
        """The key of a call: that of the same call before, where this one repeats it; else a new one."""
        if retries is not None and retries.isdigit() and int(retries) > 0:
            with self._lock:
                keys = self._failed.get(_name(url, body))
                if keys:
                    return keys.pop()
        return str(uuid.uuid4())

    def failed(self, url: str, body: bytes, key: str) -> None:
        """This call failed: the SDK may send it again."""
        with self._lock:
            keys = self._failed.setdefault(_name(url, body), [])
            keys.append(key)
            del keys[:-KEYS_MAX]
            while len(self._failed) > CALLS_MAX:
                self._failed.popitem(last=False)


def _name(url: str, body: bytes) -> tuple[str, bytes]:
    return url, hashlib.sha256(body).digest()
