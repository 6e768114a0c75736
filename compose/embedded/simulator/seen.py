"""What the simulated provider remembers of a call, so that a test can prove what reached it. After it: ``server``."""

from dataclasses import dataclass


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
