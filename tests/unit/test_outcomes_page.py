"""``docs/outcomes.md`` says what the tables say, about every finish reason and every code."""

import re

import pytest

from compose.outcomes import NEVER_A_GENERATION, NEVER_CALLED, NEXT, PAGE, REASONS, billed, page
from schemas.outcomes import ERRORS, FINISH_REASONS


def test_the_page_is_what_the_tables_say():
    """The committed page is the one that the tables make today: run ``python -m compose.outcomes --write``."""
    assert PAGE.read_text() == page()


def test_every_row_has_its_advice():
    """No finish reason and no code is without advice, and no advice is left over from a code that is gone."""
    assert set(NEXT) == set(ERRORS)
    assert set(REASONS) == FINISH_REASONS
    assert set(ERRORS) >= NEVER_A_GENERATION | NEVER_CALLED


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_the_page_names_status_and_retry(code):
    """Each code's row holds its HTTP status, whether it may be retried, and its meaning."""
    row = next(
        line for line in page().partition("## Codes")[2].splitlines() if line.startswith(f"| `{code}` |")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert re.match(rf"{ERRORS[code].status}\b", cells[2])
    assert cells[3] == ("yes" if ERRORS[code].retryable else "no")
    assert cells[5] == ERRORS[code].meaning


def test_what_is_charged_follows_the_policy():
    """A cancelled answer is charged as counted, a lost one as acknowledged, and a request that was refused not at all."""
    assert billed("cancelled") == "as the provider counted"
    assert billed("edge_lost") == "what the log acknowledged"
    assert billed("stall_timeout") == "as the provider counted; unmeasured: what the log acknowledged"
    assert billed("unauthorized") == billed("superseded") == "nothing"
