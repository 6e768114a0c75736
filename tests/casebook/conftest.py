"""One test per vector and framing; at the end a table of what passed and what was skipped, per form and reason."""

from collections import Counter

from .values import cases_of, load_vectors


def pytest_generate_tests(metafunc):
    """Make the tests from the folder that the command line names."""
    if "case" in metafunc.fixturenames:
        forms = frozenset(filter(None, metafunc.config.getoption("form").split(",")))
        cases = cases_of(load_vectors(metafunc.config.getoption("casebook")), forms)
        metafunc.parametrize("case", cases, ids=[case.name for case in cases])


def pytest_terminal_summary(terminalreporter):
    """Rows of form, outcome, number and reason: so that a skip is a known gap, not a silence."""
    rows = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            form = dict(getattr(report, "user_properties", ())).get("casebook_form")
            if form is not None:
                rows[form, outcome, _reason(report) if outcome == "skipped" else ""] += 1
    if rows:
        terminalreporter.section("casebook")
        for (form, outcome, reason), count in sorted(rows.items()):
            terminalreporter.write_line(f"{form:10} {outcome:8} {count:5}  {reason}".rstrip())


def _reason(report):
    """The words of a skip."""
    return report.longrepr[-1].removeprefix("Skipped: ")
