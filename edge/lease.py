"""The lease: may this edge emit from memory what the log has just acknowledged?

Emitting on ack is a shortcut for reading the log. It is allowed while each acknowledgement came within half the orphan
time of the *sending* of the newest record acknowledged before it: then no orphan finder can have ended the generation
in between. Once lost it stays lost; readers then follow the log. Pure. Before: ``clock``. After: ``recorder``.
"""


class Lease:
    """The lease of one generation; times are microseconds of a clock that does not stop while the machine sleeps.

    Args:
        half_orphan_us: half of the time after which a silent generation is called lost.
        sent_us: when the first record was sent.

    """

    __slots__ = ("_base_us", "_half_us", "lost")

    def __init__(self, half_orphan_us: int, sent_us: int) -> None:
        self._half_us = half_orphan_us
        self._base_us = sent_us
        self.lost = False

    def acked(self, sent_us: int, now_us: int) -> bool:
        """Take an acknowledgement; whether its record may be emitted from memory."""
        if now_us - self._base_us > self._half_us:
            self.lost = True
        self._base_us = max(self._base_us, sent_us)
        return not self.lost
