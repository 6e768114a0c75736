"""How tests are handed out to worker processes."""

from types import SimpleNamespace

import pytest

from tests.support.spread import FIRST, ONE_BY_ONE, WHOLE_FOLDERS, lot_of, rank_of


@pytest.mark.parametrize(
    ("nodeid", "lot"),
    [
        ("tests/unit/test_sse.py::test_a[x::y]", "tests/unit/test_sse.py"),
        ("tests/e2e/test_sinks.py::TestKilled::test_a", "tests/e2e/test_sinks.py"),
        ("tests/browser/test_picture.py::test_a", "tests/browser/"),
        (
            "tests/casebook/test_casebook.py::test_vector[a]",
            "tests/casebook/test_casebook.py::test_vector[a]",
        ),
    ],
)
def test_what_is_shared_is_handed_out_together(nodeid, lot):
    """A file is one lot, the browser's folder is one, and each vector is one, whatever a parameter's name looks like."""
    assert lot_of(nodeid) == lot


def test_what_waits_longest_is_begun_first():
    """Tests of processes that are killed come before those of a document, which come before those that only compute."""
    names = ["tests/faults/a", "tests/e2e/a", "tests/contract/a", "tests/casebook/a", "tests/unit/a"]
    ranks = [rank_of(SimpleNamespace(nodeid=name)) for name in names]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(names)


def test_every_folder_of_the_table_exists(request):
    """A folder that was renamed does not fall out of its place in silence."""
    folders = {*WHOLE_FOLDERS, *ONE_BY_ONE, *FIRST}
    assert [folder for folder in folders if not (request.config.rootpath / folder).is_dir()] == []
