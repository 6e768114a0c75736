"""``docs/outcomes.md``: every finish reason and every code, from the tables that the processes use.

``python -m compose.outcomes --write`` makes the page; a test holds it to the tables. What is said here beside the tables
is advice alone, one sentence a row. Before: ``schemas.outcomes``, ``pipeline.charging``. After: the reader.
"""

import sys
from pathlib import Path

from pipeline.charging import DEFAULT_POLICY, Charged
from schemas.events import Outcome, UsageSource
from schemas.outcomes import ERRORS, FINISH_REASONS, PROVIDER_WORDS

PAGE = Path(__file__).parent.parent / "docs" / "outcomes.md"

REASONS = {
    "stop": ("the answer is complete", "Validate it and use it."),
    "length": (
        "the answer was cut by an output or window limit",
        "Raise `max_tokens`, or offer to continue.",
    ),
    "tool_call": (
        "the model asks for a tool",
        "Check arguments, permission and idempotency, then run it and report back.",
    ),
    "content_filter": (
        "the provider's filter or the model refused",
        "Send it to a safety review; do not repeat it.",
    ),
    "cancelled": ("somebody cancelled it; the source is on record", "Nothing; what was generated is kept."),
    "timeout": ("a layer of time-outs expired; the code says which", "See the code."),
    "error": ("it broke; the code says how", "See the code."),
    "other": (
        "the provider's word has no mapping; it is kept as `raw_finish_reason`",
        "Treat it like `stop`.",
    ),
    "unknown": ("the provider ended properly without a word", "Treat it like `stop`."),
}
"""Finish reason → what it means to a client, what to do next."""

NEXT = {
    "incomplete_upstream": "Show the partial answer as partial; ask again if it matters. Report repeats to the provider.",
    "upstream_protocol": "Look at the attempt's raw error: the provider, or a proxy before it, speaks another dialect.",
    "upstream_frame_too_large": "Ask the provider for smaller events, or raise `limit.frame_bytes`.",
    "upstream_error": "Read the provider's own words in the error; they are kept on the attempt.",
    "overloaded": "Wait for `Retry-After`, then ask again; give the model a second route.",
    "rate_limited": "Wait for `Retry-After`, then ask again; raise the provider's limits or spread the load.",
    "queue_timeout": "The provider's queue is long: give the model another route.",
    "ttft_timeout": "Shorten the prompt, or give the model another route; see `tokentrail diagnose`.",
    "stall_timeout": "The partial answer is kept: continue from it, or ask again.",
    "decode_timeout": "Lower `max_tokens`, or raise `timeout.decode_s`; the partial answer is kept.",
    "tool_timeout": "Find the tool's own state first; repeat it only if it is idempotent.",
    "postprocess_timeout": "Check the answer on your side; it is whole.",
    "timeout": "Raise the deadline, or ask for less; the partial answer is kept.",
    "upstream_timeout": "The provider gave up itself: ask again later, or another route.",
    "kv_oom": "Shorten the context, or lower the concurrency of this model server; asking again at once will not help.",
    "cancelled": "Nothing; it was wanted.",
    "superseded": "Follow the generation that it names.",
    "log_unavailable": "Come back with the last event id after `Retry-After`: nothing that was shown is lost.",
    "edge_lost": "Ask again; what was shown is what the log holds.",
    "cursor_invalid": "Begin without a cursor, or fetch the result; send ids back unchanged.",
    "cursor_ahead": "Send the last id that was received, not a later one.",
    "resume_expired": "Fetch the result, or begin from the first seq that the answer names.",
    "erased": "Nothing: the content was forgotten on request.",
    "not_found": "Check the generation's id and the key's tenant.",
    "unauthorized": "Send a valid key in `Authorization: Bearer` or `x-api-key`.",
    "forbidden": "Use a key with the role that the message names.",
    "idempotency_conflict": "Use a new `Idempotency-Key` for a new body.",
    "quota_exceeded": "Wait for the reset that the answer names, or raise the budget.",
    "too_many_requests": "Wait for `Retry-After`; close streams that nobody reads.",
    "bad_request": "Correct the request as the message says.",
}
"""Code → what to do next."""

NEVER_A_GENERATION = frozenset(
    {"cursor_invalid", "cursor_ahead", "resume_expired", "erased", "not_found", "unauthorized", "forbidden"}
    | {"idempotency_conflict", "quota_exceeded", "too_many_requests"}
)
"""Answers to a request; no generation ends so."""
NEVER_CALLED = frozenset({"superseded", "bad_request"})
"""The generation ends before any provider could cost anything (a provider's own 400 is refused, and costs nothing)."""
_CHARGES = {
    Charged.ALL: "all of it",
    Charged.COMMITTED: "as the provider counted",
    Charged.INPUT_ONLY: "the prompt",
    Charged.ESTIMATED: "what the log acknowledged",
    Charged.NOTHING: "nothing",
}


_HOW_TO_READ = (
    "`x-should-retry` says what the *may retry* column says; the SDKs obey it. Where the answer names `Retry-After`, wait "
    "so long. *Charged* is the default policy's answer to a customer, and nothing where no content came; a provider's own "
    "cost is counted for every attempt that was dispatched."
)


def billed(code: str) -> str:
    """What the default policy charges for a generation that ends with a code."""
    if code in NEVER_A_GENERATION or code in NEVER_CALLED:
        return "nothing"
    outcome = {"cancelled": Outcome.CANCELLED, "edge_lost": Outcome.LOST}.get(code, Outcome.FAILED)
    measured = _CHARGES[DEFAULT_POLICY.charged(outcome, UsageSource.REPORTED)]
    unmeasured = _CHARGES[DEFAULT_POLICY.charged(outcome, UsageSource.ESTIMATED)]
    return measured if measured == unmeasured else f"{measured}; unmeasured: {unmeasured}"


def seen(code: str) -> str:
    """What a client gets."""
    row = ERRORS[code]
    if code in NEVER_A_GENERATION:
        return f"{row.status}"
    return f"{row.status}, or an error event"


def page() -> str:
    """The whole page."""
    lines = [
        "# How a generation can end",
        "",
        "Made by `python -m compose.outcomes --write` from the tables that edge and pipeline use; a test compares them.",
        "",
        "Every generation ends in exactly one terminal: `message_end` with a finish reason, or `error` with a code.",
        "",
        "## Finish reasons",
        "",
        "| finish reason | means | the provider's words | charged by default | what to do next |",
        "|---|---|---|---|---|",
    ]
    for reason in sorted(FINISH_REASONS):
        means, advice = REASONS[reason]
        words = ", ".join(f"`{word}`" for word, ours in PROVIDER_WORDS.items() if ours == reason) or "–"
        charged = "by code" if reason in ("error", "timeout") else _CHARGES[Charged.COMMITTED]
        lines.append(f"| `{reason}` | {means} | {words} | {charged} | {advice} |")
    lines += [
        "",
        "## Codes",
        "",
        "Before the response head a failure is an answer with its status; after it, the dialect's own error event.",
        "",
        _HOW_TO_READ,
        "",
        "| code | finish reason | what the client sees | may retry | charged | means | what to do next |",
        "|---|---|---|---|---|---|---|",
    ]
    for code, row in ERRORS.items():
        retry = "yes" if row.retryable else "no"
        reason = "–" if code in NEVER_A_GENERATION else f"`{row.finish_reason}`"
        lines.append(
            f"| `{code}` | {reason} | {seen(code)} | {retry} | {billed(code)} | {row.meaning} | {NEXT[code]} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
