"""The named limits of an edge: each a setting with its unit, default and reason; ``docs/limits.md`` is their table.

Before: ``providers`` has the base of a section. After: ``settings``.
"""

from pydantic import Field

from schemas.providers import Section

_KIB = 1 << 10
_MIB = 1 << 20


class Limit(Section):
    """Named limits."""

    head_bytes: int = Field(64 * _KIB, gt=0, description="a request's line and headers; above: 431")
    head_s: float = Field(15, gt=0, description="from a connection's start to its request's whole head")
    body_bytes: int = Field(32 * _MIB, gt=0, description="a request with images; above: 413")
    body_idle_s: float = Field(30, gt=0, description="between two pieces of a request's body; longer: 408")
    request_read_s: float = Field(
        120, gt=0, description="from a request's head to its end, however it drips; longer: 408"
    )
    upstream_head_bytes: int = Field(
        64 * _KIB, gt=0, description="one line of a provider's response head; above: the call failed"
    )
    frame_bytes: int = Field(
        8 * _MIB, gt=0, description="one provider frame; above: upstream_frame_too_large"
    )
    tool_arguments_bytes: int = Field(
        16 * _MIB, gt=0, description="arguments of one tool call; above: upstream_frame_too_large"
    )
    unacked_bytes: int = Field(4 * _MIB, gt=0, description="above: reading of the provider pauses")
    unacked_total_bytes: int = Field(
        8 * _MIB, gt=0, description="of all generations of an edge, in equal shares: about a second of a log"
    )
    window_bytes: int = Field(
        256 * _MIB, gt=0, description="recent events in memory, all generations together"
    )
    hold_bytes: int = Field(1 * _MIB, gt=0, description="events of an uncommitted attempt; above: it commits")
    generations: int = Field(10_000, gt=0, description="running at once on one edge; above: 429")
    aliases_max: int = Field(
        100_000, gt=0, description="providers' ids of answers, about 300 bytes each; the oldest are forgotten"
    )
    key_streams_max: int = Field(
        5_000, gt=0, description="connections of one key that read at once on one edge; above: 429"
    )
    readers_max: int = Field(
        1_000, gt=0, description="readers of one generation at once on one edge; above: 429"
    )
    ack_ranges: int = Field(
        64, gt=0, description="ranges of one acknowledgement, or of a resume's; above: 400"
    )
    resent_events: int = Field(
        1_024, gt=0, description="events that one acknowledgement has sent again; above: 400"
    )
    histories: int = Field(
        8,
        gt=0,
        description="whole generations read at once for one tenant, each by one request; the others wait",
    )
    histories_waiting: int = Field(
        256, gt=0, description="requests of one tenant that wait for such a reading; above: 429"
    )
    acks_noted: int = Field(
        4_096, gt=0, description="acknowledgements on record of one generation; later ones are answered only"
    )
    claims_max: int = Field(
        200_000, gt=0, description="idempotency keys of a day, about 600 bytes each; the oldest are forgotten"
    )
