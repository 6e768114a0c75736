"""What ClickHouse says of a statement decides whether rows wait or are given up."""

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, DataError

from sinks.clickhouse import BUSY_CODES, CONTENT_CODES, _asking, _inserting
from sinks.store import Refused, SqlError, Unavailable


def error_of(code):
    error = DatabaseError(f"Code: {code}. DB::Exception: told to")
    error.code = code
    return error


@pytest.mark.parametrize("code", [None, 60, 252, 242, 241, 159, 999, 1002])
def test_an_insert_waits_for_everything_but_its_own_rows(code):
    """Too many parts (252), no memory, no table, no answer: the same rows again later, and nothing is lost."""
    with pytest.raises(Unavailable), _inserting():
        raise error_of(code)


@pytest.mark.parametrize("code", sorted(CONTENT_CODES))
def test_rows_that_do_not_fit_are_refused(code):
    """A value that no retry will make fit is told as such, by the server's code or by the client itself."""
    for error in (error_of(code), DataError("no such value")):
        with pytest.raises(Refused), _inserting():
            raise error


def test_a_question_that_is_wrong_is_no_outage():
    """A busy server is asked again; a statement that it does not understand is its author's."""
    for code in sorted(BUSY_CODES):
        with pytest.raises(Unavailable), _asking():
            raise error_of(code)
    with pytest.raises(SqlError), _asking():
        raise error_of(62)
