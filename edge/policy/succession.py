"""Which ends an answer may be followed by a new generation behind, and by which. Pure.

Not every failure is one: what the client or its answer's own limits ended is over. Before: ``driver`` has excluded what
nothing may follow. After: ``driving.successor`` begins it.
"""

STALLS = frozenset({"stall_timeout", "decode_timeout"})
BREAKS = frozenset(
    {
        "incomplete_upstream",
        "upstream_error",
        "upstream_protocol",
        "upstream_timeout",
        "overloaded",
        "rate_limited",
        "kv_oom",
    }
)


def asked_for(code: str | None, on_stall: str | None, on_break: str | None) -> str | None:
    """``restart``, ``continue`` or None: what the client asked for where an answer ended with this code."""
    return on_stall if code in STALLS else on_break if code in BREAKS else None
