"""``tokentrail export``: files for finance.

Before this file: ``cli``. After it: ``sinks.exports``.
"""

import typer

app = typer.Typer(no_args_is_help=True, help="Files for finance.")
