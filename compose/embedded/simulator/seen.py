"""What the simulated provider remembers of a call, so that a test can prove what reached it. After it: ``server``."""

import asyncio
import contextlib
from dataclasses import dataclass, field, fields
from typing import Any, Final

LONG_S: Final = 1.0  # a longer wait can be cut short; a shorter one costs a timer and nothing else


@dataclass(slots=True)
class SeenRequest:
    """One POST as the provider saw it. Instants are seconds of CLOCK_MONOTONIC, durations are left to the reader."""

    index: int
    model: str
    stream: bool
    tag: str
    headers: dict[str, str]
    started_s: float
    finished_s: float | None = None  # None: still running
    chunks_sent: int = 0
    aborted_by_client: bool = False  # the client closed its connection before the answer's end
    end: str = "running"  # done, error, cut, reset, aborted, stopped (this process ends)
    released: asyncio.Event = field(
        default_factory=asyncio.Event, repr=False
    )  # whoever asked has seen enough of silence

    async def wait(self, wait_s: float) -> None:
        """Wait so long; a long silence ends when it is released."""
        if wait_s < LONG_S:
            await asyncio.sleep(wait_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.released.wait()

    def as_json(self) -> dict[str, Any]:
        """All of it that is said of a call."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "released"}
