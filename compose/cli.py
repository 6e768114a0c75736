"""The command ``tokentrail``: what it can do, and what an expected error looks like.

Each command is one function in ``commands``; here they get their names. Invariant: an error of ours is one sentence
that says what to do next, and exit code 1; a traceback means a bug.
Before this file: the shell. After it: ``commands``.
"""

import logging
import sys

import typer
from rich.markup import escape

from compose.commands import (
    bench,
    cancel,
    config,
    demo,
    diagnose,
    doctor,
    drill,
    export,
    forget,
    keys,
    show,
    simulate,
    sql,
    tail,
    topics,
    up,
)
from compose.commands.common import err
from compose.embedded.kafka import EmbeddedKafkaError
from schemas.errors import TokentrailError

app = typer.Typer(
    name="tokentrail",
    help="A streaming gateway for LLM traffic whose stream is a Kafka log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.add_typer(topics.app, name="topics")
app.command("tail")(tail.tail)
app.command("show")(show.show)
app.command("diagnose")(diagnose.diagnose)
app.command("cancel")(cancel.cancel)
app.command("forget")(forget.forget)
app.add_typer(keys.app, name="keys")
app.command("sql")(sql.sql)
app.add_typer(export.app, name="export")
app.command("simulate")(simulate.simulate)
app.command("doctor")(doctor.doctor)
app.command("bench")(bench.bench)
app.add_typer(drill.app, name="drill")
app.add_typer(config.app, name="config")


def main() -> None:
    """Run the command line; the console script."""
    # The vendors log each refused connection with a traceback's worth of noise; we say it once, in our own words
    for vendor in ("aiokafka", "clickhouse_connect"):
        logging.getLogger(vendor).setLevel(logging.CRITICAL)
    try:
        app()
    except (TokentrailError, EmbeddedKafkaError) as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has left: `tokentrail tail | head`
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # a file or folder that the caller named: not there, not ours, no room
        if error.filename is None:
            raise
        err.print(
            f"[bold red]error:[/] {escape(f'{error.filename}: {error.strerror}. Give another path, or mend this one.')}",
            soft_wrap=True,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
