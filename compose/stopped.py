"""What ``show`` says of a generation that was cancelled or ran out of time: who asked, and what was given back when.

Invariant: what there was none of, or what its edge did not say, is left out. Pure: a row of ``generations_final`` in, words
out. Before: the row. After: ``showing`` has them among its facts.
"""

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
_RELEASED = (
    ("admission_slot", "admission slot"),
    ("upstream_socket", "provider's socket"),
    ("kv_cache", "its KV cache"),
    ("budget_reservation", "budget"),
    ("memory_window", "window at the latest"),
    ("claim", "claim at the latest"),
)
_STOPPED = ("cancelled", "timeout")


def cancel_of(row: Row) -> str | None:
    """Who asked for the end, how, and where it stood then."""
    at_ms = row.get("cancel_at_ms")
    if at_ms is None:
        return None
    who = row.get("cancel_requested_by") or row.get("cancel_source")
    how = f"{row.get('cancel_mode')}, {row.get('cancel_reason')}, by {who}"
    return f"at {at_ms:,.0f} ms in {row.get('cancel_stage')}: {how}"


def given_back(row: Row) -> str | None:
    """When each thing was given back that a stopped generation held."""
    if row.get("finish_reason") not in _STOPPED:
        return None
    times = [(word, row.get(f"released_{name}_ms")) for name, word in _RELEASED]
    return ", ".join(f"{word} {at_ms:,.0f} ms" for word, at_ms in times if at_ms is not None) or None
