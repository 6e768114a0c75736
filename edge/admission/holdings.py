"""What one generation holds of this edge, and when it gives each back: the admission slot, sockets, memory, its claim.

``give_back`` is said where the terminal is written, so that the terminal can tell the times; the slot goes then, since
nothing of the generation runs any more. What outlives the terminal on purpose is told with the time at which it goes:
the window serves readers for the grace time, a claim stands for its day, unless the end makes it void. No provider is
paid in advance, so no budget is reserved. Before: ``admission``, ``once``. After: ``ending`` puts it on record.
"""

from typing import TYPE_CHECKING

from schemas.events import Dispatch, Resources
from schemas.topics import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge.admission.gate import Slot
    from edge.attempts.attempt_result import AttemptResult

CLAIM_US = DAY_MS * 1000
_NO_CACHE = (Dispatch.NOT_CONNECTED, Dispatch.REFUSED)


class Holdings:
    """Of one generation; times are its ``elapsed_us``.

    Args:
        grace_us: how long its window stays behind the terminal.

    Attributes:
        slot: its leave to run; None where it has none.
        claimed_us: when the claims topic took its claim; None where it has none.

    """

    def __init__(self, grace_us: int) -> None:
        self._grace_us = grace_us
        self._slot_us: int | None = None
        self.slot: Slot | None = None
        self.claimed_us: int | None = None

    def give_back(self, results: "Iterable[AttemptResult]", now_us: int, *, void: bool) -> Resources:
        """Give back what goes with the terminal, and tell of everything. Said again, the slot's first time stands.

        Args:
            results: what its attempts came to.
            now_us: the terminal's own time.
            void: whether its end makes its claim void: an error before any content.
        """
        if self.slot is not None and self.slot.held and self._slot_us is None:
            self.slot.release()
            self._slot_us = now_us
        called = [result for result in results if result.dispatched_us is not None]
        claimed_us = self.claimed_us
        return Resources(
            admission_slot_us=self._slot_us,
            upstream_socket_us=max((r.ended_us for r in called), default=None),
            kv_cache_us=max((r.ended_us for r in called if r.of.dispatch not in _NO_CACHE), default=None),
            memory_window_us=now_us + self._grace_us,
            claim_us=None if claimed_us is None else now_us if void else claimed_us + CLAIM_US,
        )

    def release(self) -> None:
        """The generation is over without a terminal of this edge; said again, nothing happens."""
        if self.slot is not None:
            self.slot.release()
