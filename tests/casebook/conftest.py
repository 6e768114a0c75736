"""One test per vector and framing; the table at the end is made by the root's conftest."""

import pytest

from .values import cases_of, form_module, load_vectors


def pytest_generate_tests(metafunc):
    """Make the tests from the folder that the command line names; those of a form that takes services are marked so."""
    if "case" in metafunc.fixturenames:
        forms = frozenset(filter(None, metafunc.config.getoption("form").split(",")))
        cases = cases_of(load_vectors(metafunc.config.getoption("casebook")), forms)
        metafunc.parametrize("case", [pytest.param(case, id=case.name, marks=_marks(case)) for case in cases])


def _marks(case):
    module = form_module(case.vector["form"])
    return [pytest.mark.services] if getattr(module, "SERVICES", ()) else []
