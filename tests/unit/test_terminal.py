"""An operator's terminal shows what callers and models wrote, and does nothing that they say."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from compose.logs import Terminal

CLEAR, TITLE, C1, TURN = "\x1b[2J", "\x1b]0;x\x07", "\x9b2J", "\u202egnp.exe"


def shown(what, *, colours):
    """Give what a terminal is sent for something that is printed."""
    file = io.StringIO()
    Terminal(
        file=file, highlight=False, force_terminal=colours, color_system="standard" if colours else None
    ).print(what)
    return file.getvalue()


@pytest.mark.parametrize("said", [CLEAR, TITLE, C1, TURN, "a\rb", "\x00", "\x7f"])
@pytest.mark.parametrize("colours", [True, False])
def test_no_text_commands_the_terminal(said, colours):
    """Neither in a line, in a styled text, nor in a table: a mark stands in place of each control character."""
    table = Table("id", "said")
    table.add_row("1", said)
    for what in (f"before {said} after", Text(f"before {said} after"), table):
        sent = shown(what, colours=colours)
        assert said not in sent
        assert not set(sent.replace("\x1b[0m", "").replace("\x1b[1m", "")) & set(
            "\x00\x07\x1b\x7f\x9b\u202e\r"
        )


def test_what_is_ours_stays():
    """Colours, line ends, tabs and every script go through."""
    sent = shown(Text("é 你好 😀\nשלום", style="bold red"), colours=True)
    assert "\x1b[1;31m" in sent
    assert "é 你好 😀" in sent
    assert "שלום" in sent
    assert "\n" in sent
