"""``tokentrail simulate``: a provider to try things against, with seeded latencies and faults.

Before this file: ``cli``. After it: ``compose.embedded.simulator``.
"""

import asyncio
import signal
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from compose.commands.common import JsonOption, out, print_json, run
from compose.embedded.simulator import PRESETS, Simulator
from compose.embedded.simulator.traits import PROFILES, Spread, Traits, profile_of
from schemas.errors import TokentrailError


def simulate(
    profile: Annotated[
        str, typer.Option(help=f"one of {', '.join(PROFILES)}, or a TOML file of traits")
    ] = "flaky",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="on 127.0.0.1; 0 picks a free one")] = 9_000,
    seed: Annotated[int, typer.Option(help="the same seed gives the same answers, in order")] = 0,
    *,
    show: Annotated[bool, typer.Option("--show", help="print the profile and end")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a simulated provider in the OpenAI and Anthropic dialects until Ctrl-C."""
    traits = profile_of(profile)
    if show:
        if as_json:
            print_json(msgspec.to_builtins(traits))
        else:
            out.print(_table(profile, traits))
        return
    run(_serve(traits, profile, port, seed, as_json=as_json))


async def _serve(traits: Traits, profile: str, port: int, seed: int, *, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with Simulator(port=port, seed=seed, traits=traits) as simulator:
            if as_json:
                print_json({"base_url": simulator.base_url, "profile": profile, "seed": seed})
            else:
                out.print(_table(profile, traits))
                out.print(
                    f"base_url [bold]{simulator.base_url}[/] · any model name · presets: {', '.join(PRESETS)}"
                )
            await stop.wait()
    except OSError as error:
        raise TokentrailError(
            f"cannot listen on 127.0.0.1:{port} ({error.strerror}): choose another --port"
        ) from error


def _table(profile: str, traits: Traits) -> Table:
    """What differs between providers: the times, and every share that is not zero."""
    table = Table("trait", "value", title=f"simulated provider: {profile}", header_style="bold")
    for name in Traits.__struct_fields__:
        value = getattr(traits, name)
        if isinstance(value, Spread):
            table.add_row(name, f"median {value.median:g}, p99 {value.p99:g}")
        elif name.endswith("_share") and value:
            table.add_row(name, f"{value:.1%}")
    return table
