"""``tokentrail demo``: a stack of its own, the whole path once with its proof, then SQL, the bill, and the page.

Before this file: ``cli``. After it: ``compose.run`` (the stack), ``compose.demo`` (the proof).
"""

import asyncio
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from compose.commands.common import Interrupts, JsonOption, err, out, print_json, program, run
from compose.commands.sql import show_rows
from compose.config import load_settings
from compose.demo import DemoFailed, Proof, prove
from compose.demo_tries import HEDGING, second_tries
from compose.run import running
from compose.stack import UpOptions
from compose.state import DEFAULT_FOLDER, Folder, StackState
from compose.warehouse import query
from schemas.settings import ClickHouse

DEMO_FOLDER = Path(DEFAULT_FOLDER) / "demo"
_QUESTIONS = (
    (
        "How fast is each model?",
        """SELECT model, generations, errors, round(ttft_p50_ms) AS ttft_ms, round(e2e_p50_ms) AS e2e_ms,
                  round(tokens_per_second_active, 1) AS tokens_per_s FROM latency_by_model""",
    ),
    (
        "Where did it fall silent?",
        "SELECT provider, model, attempt, seq, start_ms, length_ms, ended_by FROM stalls ORDER BY length_ms DESC LIMIT 5",
    ),
)


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="folder of its state; default: a temporary one with --once")
    ] = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="end by itself; exit code 0 only if all of it held")
    ] = False,
    model: Annotated[
        bool, typer.Option("--model", envvar="MODEL", help="a real small model instead of the simulator")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start everything, cut a stream in the middle, resume it on another edge, prove that nothing is lost."""
    with ExitStack() as stack:
        if folder is None and once:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokentrail-demo-")))
        options = UpOptions(
            folder=Folder((folder or DEMO_FOLDER).absolute()),
            environ=os.environ if model else {**HEDGING, **os.environ},
            edge_port=0 if once else None,
            with_model=model,
        )
        proof = run(_demo(options, once=once, as_json=as_json))
    if proof is not None and proof.failures:
        raise DemoFailed("It did not hold: " + "; ".join(proof.failures) + ".")


async def _demo(options: UpOptions, *, once: bool, as_json: bool) -> Proof | None:
    said = err if as_json else out
    proof: Proof | None = None
    interrupts = Interrupts()
    try:
        said.print("[dim]Starting Kafka, ClickHouse, a provider, two edges, the pipeline and the sinks …[/]")

        def say(name: str, line: str) -> None:
            said.print(f"  [dim]{name:<11}{line}[/]")

        async with running(options, say, interrupts.hurry) as state:
            clickhouse = _clickhouse(state)
            key = next(iter(options.folder.read_keys().values()))
            tell = partial(said.print, soft_wrap=True)
            proof = await prove(state, key, clickhouse, tell)
            tried = {} if options.with_model else await second_tries(state, key, clickhouse, tell)
            wrong = [fault for name, one in tried.items() for fault in one.failures(name)]
            proof = replace(proof, failures=(*proof.failures, *wrong))
            if as_json:
                print_json({**proof.as_json(state), **{name: one.as_json() for name, one in tried.items()}})
            else:
                _narrate(said, proof)
                await asyncio.to_thread(_answers, said, clickhouse)
            if not once:
                said.print(f"Open {state.edges[0]}/ in a browser; its key is {key}", soft_wrap=True)
                said.print(f"The edges are {' and '.join(state.edges)}. Everything stays up until Ctrl-C.")
                said.print(
                    f"Watch from a second terminal: [bold]{program()} tail --dir {options.folder.path}[/]",
                    soft_wrap=True,
                )
                await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not interrupts.asked:
            raise
        if proof is None:
            raise DemoFailed("It was stopped before it came to its end.") from None
    return proof


def _clickhouse(state: StackState) -> ClickHouse:
    settings = load_settings(Path(state.config)).clickhouse
    return settings.model_copy(update={"url": state.clickhouse.address})


def _narrate(console: Console, proof: Proof) -> None:
    same = proof.text_sha256_live == proof.text_sha256_resumed == proof.text_sha256_clickhouse
    console.print()
    console.print("SHA-256 of what it said:")
    for name, value in (  # 80 cells: a hash that is broken by the terminal cannot be compared by eye
        ("cut, resumed", proof.text_sha256_live),
        ("from the log", proof.text_sha256_resumed),
        ("ClickHouse", proof.text_sha256_clickhouse),
    ):
        console.print(f"  {name:<12}  [{'green' if same else 'red'}]{value}[/]", soft_wrap=True)
    if proof.failures:
        for failure in proof.failures:
            console.print(f"  [bold red]✗[/] {failure}")
    else:
        console.print(
            f"  [bold green]Nothing was lost, nothing was repeated[/]: {proof.events} events, one of each."
        )
    console.print()


def _answers(console: Console, clickhouse: ClickHouse) -> None:
    for title, sql in _QUESTIONS:
        if rows := query(clickhouse, sql):
            show_rows(console, rows, title)
    bill = query(
        clickhouse,
        "SELECT bucket, sumIf(quantity, side = 'provider_cost') AS tokens, unit_price, "
        "sumIf(amount, side = 'provider_cost') AS cost_usd, sumIf(amount, side = 'customer_charge') AS charge_usd, "
        "countIf(amount IS NULL) AS unmeasured FROM ledger_current GROUP BY bucket, unit_price ORDER BY bucket",
    )
    if bill:
        show_rows(console, bill, "The bill")
