"""The table of limits in the documents is that of the settings."""

import re

from schemas.settings import Limit, Settings
from tests.support.sources import ROOT

ROW = re.compile(r"^\| `(\w+)\.(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "limits.md").read_text())
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "s": 1}


def number_of(text):
    """Give what a default in the table is worth: with its unit, or a bare number."""
    digits, _, unit = text.strip().partition(" ")
    return int(digits.replace(",", "")) * UNITS.get(unit, 1)


def test_every_row_is_a_setting_with_its_default():
    """A setting that the table names is there, and its default is the one that the table says."""
    for section, field, default, *_ in ROWS:
        model = Settings.model_fields[section].annotation
        assert number_of(default) == model.model_fields[field].default, f"{section}.{field}"


def test_every_limit_has_one_row():
    """The section of limits is told whole, each once, and each with a reason and what happens."""
    told = [field for section, field, *_ in ROWS if section == "limit"]
    assert sorted(told) == sorted(Limit.model_fields)
    assert [row for row in ROWS if not row[3].strip() or not row[4].strip()] == []


def test_every_limit_says_its_unit():
    """A limit's name ends in its unit, or counts what it names."""
    counted = {"generations", "aliases_max", "claims_max", "ack_ranges", "resent_events", "acks_noted"}
    counted |= {"histories", "histories_waiting", "key_streams_max", "readers_max"}
    assert [
        name for name in Limit.model_fields if not name.endswith(("_bytes", "_s")) and name not in counted
    ] == []
