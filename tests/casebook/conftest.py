"""One test per vector and framing; the table at the end is made by the root's conftest."""

from .values import cases_of, load_vectors


def pytest_generate_tests(metafunc):
    """Make the tests from the folder that the command line names."""
    if "case" in metafunc.fixturenames:
        forms = frozenset(filter(None, metafunc.config.getoption("form").split(",")))
        cases = cases_of(load_vectors(metafunc.config.getoption("casebook")), forms)
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])
