"""The native form of every golden example, pinned: one pure function of the record, whatever schema wrote it."""

import json
from pathlib import Path

import pytest

from edge.dialects.native import native_frame
from schemas.codec import Codec
from schemas.events import LogEvent
from tests.support.golden import EXAMPLES

PINNED = Path(__file__).parents[2] / "schemas" / "examples" / "native" / "frames.json"
NUMBERED = [
    example
    for path in sorted(EXAMPLES.glob("*.json"))
    if (example := json.loads(path.read_text()))["record"] == "LogEvent"
    and "seq" in example["value"]
    and "part" not in example["value"]
]


@pytest.mark.parametrize("example", NUMBERED, ids=lambda e: e["scenario"])
def test_the_native_form_is_pinned(example):
    """A numbered record is shown as it was shown when its example was written; a new example needs its native form."""
    codec = Codec()
    for schema in (EXAMPLES.parent / "avro" / "history").glob("*.avsc"):
        codec.learn(schema.read_text())
    event = codec.decode(bytes.fromhex(example["avro_hex"]), LogEvent)
    name, data = native_frame(event)
    pinned = json.loads(PINNED.read_text())
    assert example["scenario"] in pinned, "add it to frames.json"
    assert [name, json.loads(data)] == pinned[example["scenario"]]
