"""What ``show`` says of one generation, in the words and the width of a terminal of 80 columns.

Two sources become one form: rows of ClickHouse, or, while it runs, what its edge says of it. Invariants: a value is never
folded within a word; an amount is exact, and what was not measured is left out or a dash, never a zero. Pure: rows in,
words and tables out. Before this file: ``commands/show``. After it: ``timeline`` draws.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.markup import escape
from rich.table import Table

from compose.stopped import cancel_of, given_back
from compose.timeline import Mark
from schemas.money import plain

Row = dict[str, Any]
Facts = list[tuple[str, str]]
_CONTENT = ("delta", "tool_call_delta", "citation_delta")
_LETTERS = {"cancel_requested": "C", "message_end": "T", "error": "T"} | dict.fromkeys(_CONTENT, "F")
NAMES_CELLS_MAX = 28
FORGOTTEN = "on request: what it said is erased, its figures are kept"
_TOKENS = (
    ("input", "input"),
    ("cache_read", "read from a cache"),
    ("cache_write", "written to a cache"),
    ("output", "output"),
)


def facts_of(row: Row, ledger: Sequence[Row]) -> Facts:
    """A finished generation in a few lines, how it ended first."""
    asked, served = row["model"], row.get("served_model")
    usage = {name: row.get(f"usage_{name}") for name, _ in _TOKENS}
    said = [
        ("outcome", _outcome(row["terminal"], row["finish_reason"], row["error_code"])),
        ("it says", row.get("error_message")),
        ("cancelled", cancel_of(row)),
        ("given back", given_back(row)),
        ("tenant", row["tenant"]),
        ("model", f"{asked}, served as {served}" if served and served != asked else asked),
        ("first token", _ms(row["ttft_ms"])),
        ("end to end", _ms(row["e2e_ms"])),
        ("silent", _silent(row["stall_count"], row["stall_ms"])),
        ("tokens", _tokens(usage, row["usage_source"])),
        ("provider cost", _sum(ledger, "provider_cost")),
        ("charge", _sum(ledger, "customer_charge")),
        ("follows", _follows(row.get("previous_generation_id"), row.get("lineage_kind"))),
        ("request", row.get("request_id")),
        ("edge", row["edge_id"]),
    ]
    return [(label, str(value)) for label, value in said if value not in (None, "")]


def facts_of_running(live: Row, now_us: int) -> Facts:
    """What its edge says of one that ClickHouse has no row of yet."""
    start, stalls = live.get("start") or {}, live.get("stalls") or []
    end = live.get("end") or {}
    terminal = live.get("terminal") or {}
    ended = _outcome(terminal.get("kind"), end.get("finish_reason"), end.get("code")) if terminal else None
    said = [
        ("outcome", ended or f"running: {live.get('state')}"),
        ("it says", end.get("message")),
        ("model", start.get("model")),
        ("first token", _ms(_in_ms(live.get("first_content_us")))),
        ("end to end" if terminal else "so far", _ms(_in_ms(_until_us(live, now_us)))),
        ("silent", _silent(len(stalls), sum(stall["length_us"] for stall in stalls) / 1000)),
        ("events", f"{live['events']:,}" if live.get("events") is not None else None),
        ("tokens", _tokens(live.get("usage") or {}, (live.get("usage") or {}).get("source"))),
        ("follows", _follows(start.get("previous_generation_id"), start.get("lineage_kind"))),
        ("request", start.get("request_id")),
        ("edge", live.get("edge_id")),
    ]
    return [(label, str(value)) for label, value in said if value not in (None, "")]


def attempts_of_running(live: Row, now_us: int) -> list[Row]:
    """Its attempts as ClickHouse would have them; one that runs lasts until now."""
    until_us = _until_us(live, now_us)
    return [
        {
            **attempt,
            "model": attempt.get("served_model") or attempt.get("model"),
            "dispatched_ms": _in_ms(attempt.get("dispatched_us", attempt.get("opened_us"))),
            "first_content_ms": _in_ms(attempt.get("first_content_us")),
            "last_content_ms": _in_ms(attempt.get("last_content_us")),
            "elapsed_ms": _in_ms(
                attempt.get("elapsed_us")
                or max(0, until_us - (attempt.get("dispatched_us") or attempt.get("opened_us") or 0))
            ),
            "outcome": attempt.get("outcome") or "runs",
            "error_code": attempt.get("error_code"),
        }
        for attempt in _attempts_so_far(live)
    ]


def _attempts_so_far(live: Row) -> list[Row]:
    """Its attempts, the one that runs with what was delivered so far: its own figures come with its end only.

    Where several race, or content came before it was opened, nobody can say whose that is.
    """
    attempts, first_us = list(live.get("attempts") or []), live.get("first_content_us")
    running = [place for place, attempt in enumerate(attempts) if not attempt.get("outcome")]
    if first_us is None or len(running) != 1 or (attempts[running[0]].get("opened_us") or 0) > first_us:
        return attempts
    of_content = {"first_content_us": first_us, "last_content_us": live.get("last_content_us")}
    attempts[running[0]] = {**attempts[running[0]], **of_content, "committed": True}
    return attempts


def stalls_of_running(live: Row) -> list[Row]:
    """Its silences so far, as ClickHouse would have them."""
    return [
        {
            "attempt": stall["attempt"],
            "seq": stall.get("seq"),
            "start_ms": stall["start_us"] / 1000,
            "length_ms": stall["length_us"] / 1000,
            "ended_by": stall.get("ended_by") or "content",
        }
        for stall in live.get("stalls") or []
    ]


def marks_of(timeline: Sequence[Row], stalls: Sequence[Row]) -> list[Mark]:
    """What the picture has letters for."""
    marks = [Mark(stall["start_ms"], "S") for stall in stalls if stall["start_ms"] is not None]
    for row in timeline:
        letter = _LETTERS.get(row["kind"])
        if row["kind"] == "attempt_start" and row["attempt"]:
            letter = "H" if row["reason"].startswith("hedge") else "R"
        if letter is not None and row["elapsed_ms"] is not None:
            marks.append(Mark(row["elapsed_ms"], letter))
    return marks


def marks_of_forgotten(row: Row, attempts: Sequence[Row]) -> list[Mark]:
    """The same from what is kept of one whose events are erased."""
    found = [(attempt.get("first_content_ms"), "F") for attempt in attempts]
    found += [(row.get("cancel_at_ms"), "C"), (row.get("latency_total_ms"), "T")]
    return [Mark(at_ms, letter) for at_ms, letter in found if at_ms is not None]


def timeline_table(timeline: Sequence[Row], stalls: Sequence[Row]) -> Table:
    """What happened, in the order of time."""
    table = _table("Timeline", ("ms", "right"), ("seq", "right"), ("what", "left"), ("", "left"))
    lines = [
        (row["elapsed_ms"], row["seq"], _what(row), escape(row["said"] or row["reason"] or "").strip())
        for row in timeline
    ]
    lines += [
        (
            stall["start_ms"],
            stall["seq"],
            f"[yellow]silent for {stall['length_ms']:,.0f} ms[/]",
            f"attempt {stall['attempt']}, ended by {stall['ended_by']}",
        )
        for stall in stalls
    ]
    for elapsed_ms, seq, what, said in sorted(lines, key=lambda line: (line[0] is None, line[0])):
        table.add_row(
            "" if elapsed_ms is None else f"{elapsed_ms:,.1f}", "" if seq is None else str(seq), what, said
        )
    return table


def attempts_table(attempts: Sequence[Row]) -> Table:
    """Each call to a provider, and what became of it."""
    table = _table(
        "Attempts",
        ("#", "right"),
        ("outcome", "left"),
        ("committed", "left"),
        ("to first", "right"),
        ("in all", "right"),
        ("provider/model", "left"),
    )
    for row in attempts:
        first = row.get("first_content_ms")
        waited = None if first is None or row.get("dispatched_ms") is None else first - row["dispatched_ms"]
        outcome = row.get("error_code") or row.get("outcome")
        table.add_row(
            str(row["attempt"]),
            escape(str(outcome or "–")),
            "yes" if row.get("committed") else "no",
            _ms(waited) or "–",
            _ms(row.get("elapsed_ms")) or "–",
            escape(_called(row)),
        )
    return table


def ledger_table(ledger: Sequence[Row]) -> Table:
    """What each bucket of each attempt cost and was charged, exactly; what has no price is a dash."""
    table = _table(
        "Ledger",
        ("#", "right"),
        ("bucket", "left"),
        ("quantity", "right"),
        ("provider_cost", "right"),
        ("customer_charge", "right"),
        ("", "left"),
        ("status", "left"),
    )
    lines: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in ledger:
        name = (row["attempt"], row["bucket"], row["quantity"], row["currency"], row["status"])
        lines.setdefault(name, {})[row["side"]] = row
    for (attempt, bucket, quantity, currency, status), sides in lines.items():
        amounts = [_amount(sides.get(side)) for side in ("provider_cost", "customer_charge")]
        counted = "–" if quantity is None else f"{quantity:,}"
        table.add_row(str(attempt), bucket, counted, *amounts, currency, status)
    return table


def _table(title: str, *columns: tuple[str, str]) -> Table:
    """Without lines between: what they take, the values need."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None)
    for number, (name, justify) in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(name, justify=justify, no_wrap=not last, overflow="fold")  # type: ignore[arg-type]
    return table


def _outcome(kind: str | None, reason: str | None, code: str | None) -> str:
    if kind == "error":
        return f"failed: {code or 'error'}"
    return "cancelled" if reason == "cancelled" else f"complete: {reason or 'unknown'}"


def _what(row: Row) -> str:
    kind = str(row["kind"])
    if kind in _CONTENT:
        return "[green]first token[/]"
    return kind if row["attempt"] is None or not kind.startswith("attempt_") else f"{kind} {row['attempt']}"


def _called(row: Row) -> str:
    """Provider and model: in two lines where one is too long for what the other columns leave."""
    provider, model = row.get("provider") or "?", row.get("model") or "?"
    gap = "/\n" if len(provider) + len(model) > NAMES_CELLS_MAX else "/"
    return f"{provider}{gap}{model}"


def _silent(count: int | None, length_ms: float | None) -> str | None:
    if not count:
        return None
    return f"{_ms(length_ms)} in {count} stall{'' if count == 1 else 's'}"


def _tokens(usage: Mapping[str, Any], source: str | None) -> str | None:
    known = [f"{usage[name]:,} {word}" for name, word in _TOKENS if usage.get(name)]
    return f"{', '.join(known)} ({source})" if known else None


def _sum(ledger: Sequence[Row], side: str) -> str | None:
    """Exact sums, one for each currency; lines without an amount are told, not counted as nothing."""
    sums: dict[str, Decimal] = {}
    without = 0
    for row in ledger:
        if row["side"] == side and row["amount"] is None:
            without += 1
        elif row["side"] == side:
            sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + Decimal(row["amount"])
    said = [f"{plain(amount)} {currency}" for currency, amount in sums.items()]
    if without:
        said.append(f"{without} line{'' if without == 1 else 's'} without a price")
    return " and ".join(said) or None


def _amount(row: Row | None) -> str:
    return "–" if row is None or row["amount"] is None else plain(Decimal(row["amount"]))


def _follows(previous: str | None, kind: str | None) -> str | None:
    return f"{kind or 'retry'} of {previous}" if previous else None


def _until_us(live: Row, now_us: int) -> int:
    """Its age; by the wall, since its edge's own clock is not told, but never before what is known."""
    terminal = live.get("terminal")
    if terminal:
        return int(terminal["at_us"])
    return max(int(live.get("last_content_us") or 0), now_us - int(live.get("started_us", now_us)))


def _in_ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _ms(ms: float | None) -> str | None:
    return None if ms is None else f"{ms:,.0f} ms"
