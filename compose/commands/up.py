"""``tokentrail up``: the whole stack in the foreground, one coloured log, until Ctrl-C or SIGTERM; twice Ctrl-C kills it.

Before this file: ``cli``. After it: ``compose.run`` (order), ``compose.logs`` (what is shown).
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from compose.commands.common import (
    DEFAULT_DIR,
    FolderOption,
    Interrupts,
    JsonOption,
    err,
    out,
    print_json,
    program,
    run,
)
from compose.logs import LogPrinter
from compose.run import AlreadyRuns, running
from compose.stack import EDGE_PORT, UpOptions
from compose.state import PORT_MAX, Folder, StackState


def up(
    folder: FolderOption = DEFAULT_DIR,
    edge_port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=PORT_MAX,
            help="port of the first edge, the next ones count on; 0: any free ones; "
            f"default: {EDGE_PORT} where it is free, else that of the last time",
        ),
    ] = None,
    edges: Annotated[int, typer.Option(min=1, max=16, help="how many edges")] = 2,
    kafka_port: Annotated[
        int,
        typer.Option(
            min=0, max=PORT_MAX, help="port of the embedded Kafka; 0: that of the last time, or free"
        ),
    ] = 0,
    clickhouse_port: Annotated[
        int, typer.Option(min=0, max=PORT_MAX, help="port of the embedded ClickHouse; 0: likewise")
    ] = 0,
    brokers: Annotated[int, typer.Option(help="1, or 3 for a cluster on this machine")] = 1,
    *,
    model: Annotated[
        bool, typer.Option("--model", help="also serve a real small model (extra `model`)")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start everything; stop it with Ctrl-C. A second `up` on the same folder says what runs."""
    if brokers not in (1, 3):
        raise typer.BadParameter("a cluster has 1 or 3 brokers", param_hint="--brokers")
    nodes: Literal[1, 3] = 3 if brokers == 3 else 1  # noqa: PLR2004 - said above
    options = UpOptions(
        folder=Folder(folder.absolute()),
        environ=os.environ,
        cwd=Path.cwd(),
        edges=edges,
        edge_port=edge_port,
        kafka_port=kafka_port,
        clickhouse_port=clickhouse_port,
        brokers=nodes,
        with_model=model,
    )
    try:
        run(_serve(options, as_json=as_json))
    except AlreadyRuns as already:
        _tell(already.state, options.folder, as_json=as_json, title="This stack already runs")


async def _serve(options: UpOptions, *, as_json: bool) -> None:
    interrupts = Interrupts()
    printer = LogPrinter(options.folder.logs, err)
    try:
        async with printer, running(options, printer.say, interrupts.hurry) as state:
            _tell(state, options.folder, as_json=as_json, title="The stack is ready")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not interrupts.asked:
            raise


def _tell(state: StackState | None, folder: Folder, *, as_json: bool, title: str) -> None:
    if state is None or not state.ready:
        err.print("This stack is being started by another process; run `tokentrail up` again in a moment.")
    elif as_json:
        print_json(summary(state))
    else:
        # Keys of an earlier time may lie in the folder while another configuration is in force
        is_ours = state.config == str(folder.config)
        _print(state, folder.read_keys() if is_ours else {}, title)


def _print(state: StackState, keys: Mapping[str, str], title: str) -> None:
    out.print(f"[bold green]{title}[/] (supervisor: process {state.supervisor_pid}; Ctrl-C there stops it)")
    addresses = {"kafka": state.kafka.address, "clickhouse": state.clickhouse.address}
    for name, address in (addresses | {f"edge-{n}": url for n, url in enumerate(state.edges, 1)}).items():
        out.print(f"  {name:<12}{address}")
    out.print(f"  {'model':<12}{state.model}")
    if state.edges:
        out.print(f"  {'page':<12}{state.edges[0]}/")
    for tenant, key in keys.items():
        # At each start and not only at the first, whose log scrolls away
        out.print(f"  {'key':<12}{key} ({tenant}, for development)", soft_wrap=True)
    if state.edges:
        name = escape(program())
        out.print(
            f"  watch with [bold]{name} tail[/], check with [bold]{name} doctor[/]",
            soft_wrap=True,
        )


def summary(state: StackState) -> dict[str, object]:
    """The state as scripts read it."""
    return {
        "ready": state.ready,
        "supervisor_pid": state.supervisor_pid,
        "config": state.config,
        "model": state.model,
        "kafka": {"kind": state.kafka.kind, "version": state.kafka.version, "address": state.kafka.address},
        "clickhouse": {
            "kind": state.clickhouse.kind,
            "version": state.clickhouse.version,
            "address": state.clickhouse.address,
        },
        "edges": state.edges,
        "processes": {p.name: p.pid for p in state.processes},
    }
