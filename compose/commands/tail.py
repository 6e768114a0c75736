"""``tokentrail tail [ID]``: watch one stream from the log, or everything that is published now.

Before this file: ``cli``. After it: ``compose.tail``.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from compose.commands.common import (
    DEFAULT_DIR,
    FolderOption,
    JsonOption,
    err,
    out,
    print_json,
    run,
    target_of,
    whole_id,
)
from compose.tail import Seen, follow_all, follow_one, text_of
from schemas.events import CONTENT_KINDS, TERMINALS, Kind

_STYLES = {
    Kind.MESSAGE_START: "bold cyan",
    Kind.MESSAGE_END: "bold green",
    Kind.ERROR: "bold red",
    Kind.FRAME: "dim",
}
_ID_CHARACTERS = 8
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")


def tail(
    generation_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="a generation, from its beginning to its end; default: all that is published from now on",
            callback=lambda text: text and whole_id(text),
        ),
    ] = None,
    folder: FolderOption = DEFAULT_DIR,
    *,
    as_json: JsonOption = False,
    trace: Annotated[bool, typer.Option(help="also heartbeats, attempts, readers")] = True,
) -> None:
    """Watch a stream from the log, not from an edge: what is shown is what every reader gets."""
    target = target_of(folder)
    if generation_id is None:
        err.print("[dim]Waiting for what is published from now on; Ctrl-C ends it.[/]")
        seen = follow_all(target.kafka)
    else:
        seen = follow_one(target.kafka, generation_id, skew_s=target.settings.resume.skew_s)
    run(_print_all(seen, as_json=as_json, trace=trace, with_id=generation_id is None))


async def _print_all(records: AsyncIterator[Seen], *, as_json: bool, trace: bool, with_id: bool) -> None:
    async for seen in records:
        if not trace and seen.event is not None and seen.event.seq is None:
            continue
        if as_json:
            print_json(as_row(seen))
        else:
            out.print(as_line(seen, with_id=with_id), soft_wrap=True)


def as_row(seen: Seen) -> dict[str, Any]:
    """A record for scripts: where it lies, what it is, and its text."""
    row: dict[str, Any] = {
        "partition": seen.partition,
        "offset": seen.offset,
        "timestamp_ms": seen.timestamp_ms,
    }
    if seen.event is None:
        return row | {"undecodable": seen.note}
    event = msgspec.to_builtins(seen.event)
    return row | {"text": text_of(seen.event), **event}


def as_line(seen: Seen, *, with_id: bool) -> Text:
    """A record for people: time since the start, seq, kind, text."""
    event = seen.event
    if event is None:
        return Text(f"{seen.partition}.{seen.offset}  undecodable: {seen.note}", style="red")
    line = Text()
    if with_id:
        ident = event.generation_id[-_ID_CHARACTERS:]
        line.append(f"{ident}  ", style=_COLOURS[sum(ident.encode()) % len(_COLOURS)])
    elapsed = f"{event.elapsed_us / 1000:>9.1f} ms" if event.elapsed_us is not None else f"{'':>12}"
    line.append(f"{elapsed}  ", style="dim")
    line.append(f"{event.seq if event.seq is not None else '·':>5}  ")
    style = _STYLES.get(event.kind, "" if event.kind in CONTENT_KINDS else "dim")
    line.append(f"{event.kind.value:<17}", style=style)
    said = text_of(event)
    if with_id and event.kind is Kind.MESSAGE_START:  # once whole, as `show` and `cancel` want it
        said = f"{event.generation_id}, {said}"
    if event.kind in CONTENT_KINDS:
        line.append(repr(said)[1:-1])
    else:
        line.append(said, style="bold" if event.kind in TERMINALS else "dim")
    return line
