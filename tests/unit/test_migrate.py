"""Migrations, as far as they are text."""

from __future__ import annotations

import re

import pytest

from sinks import migrate


class Recorder:
    """A store that takes every statement and knows nothing."""

    def __init__(self):
        self.statements: list[str] = []

    def command(self, sql, params=None):
        del params
        self.statements.append(sql)

    def query(self, sql, params=None):
        del sql, params
        return []


def test_statements_are_split_at_semicolons_that_end_a_line():
    """Comments go, a semicolon within a line stays, a last statement needs none."""
    text = "-- note; here\nSELECT 'a;b';\n\nSELECT\n  2 -- two\n;\nSELECT 3"
    assert migrate.statements(text) == ["SELECT 'a;b'", "SELECT\n  2 -- two", "SELECT 3"]


def test_every_shipped_statement_may_run_twice():
    """A crash between two statements, or two sinks at once, must find every statement repeatable."""
    for migration in migrate.shipped():
        for statement in migrate.statements(migration.text):
            repeatable = re.match(r"CREATE (TABLE IF NOT EXISTS|OR REPLACE VIEW) ", statement)
            changes = re.findall(r"^    (\w+ (?:COLUMN|INDEX)(?: IF NOT EXISTS)?) ", statement, re.MULTILINE)
            may = {"ADD COLUMN IF NOT EXISTS", "ADD INDEX IF NOT EXISTS"}
            added = statement.startswith("ALTER TABLE ") and changes and set(changes) <= may
            assert repeatable or added, statement[:60]


def test_engines_are_switched_by_one_setting():
    """On a cluster every table is replicated, on one server none; nothing else of the text changes."""
    single, cluster = Recorder(), Recorder()
    migrate.apply(single)
    migrate.apply(cluster, replicated=True)
    engines = [re.findall(r"ENGINE = (\w+)", " ".join(r.statements)) for r in (single, cluster)]
    assert set(engines[0]) == {"ReplacingMergeTree"}
    assert set(engines[1]) == {"ReplicatedReplacingMergeTree"}
    assert "${" not in " ".join(single.statements + cluster.statements)


@pytest.mark.parametrize("name", [m.name for m in migrate.shipped()])
def test_a_hash_is_of_the_file_alone(name):
    """The same file has the same hash on a cluster and on one server."""
    (migration,) = [m for m in migrate.shipped() if m.name == name]
    assert len(migration.hash) == 64
    assert migration.hash != migration._replace(text=migration.text + " ").hash
