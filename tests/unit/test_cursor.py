"""The signed SSE id: what is taken, what is refused, and that nothing can be moved to another seq or generation."""

import hmac
import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import cursor as module
from schemas.cursor import (
    CURSOR_BYTES_MAX,
    Cursor,
    CursorMalformed,
    Signer,
    parse,
    render,
    resumption_token,
    sign,
    verify,
)
from tests.support.events import GENERATION_ID

SECRET, OLD_SECRET = b"newest", b"older"
SIG = sign(SECRET, GENERATION_ID, 41, "key-1")


def test_signature_is_the_documented_one():
    """The signature is the first 16 bytes of the HMAC over id, seq and key id, as unpadded base64url."""
    mac = hmac.new(SECRET, f"{GENERATION_ID}|41|key-1".encode(), "sha256").digest()
    assert urlsafe_b64encode(mac[:16]).decode().rstrip("=") == SIG


@given(st.binary(min_size=1, max_size=200), st.text(min_size=1), st.text(), st.integers(0, 10**16 - 1))
def test_a_signer_signs_alike(secret, generation_id, key_id, seq):
    """What a generation's signer says of any seq is the signature, whatever the secret's length."""
    signer = Signer(secret, generation_id, key_id)
    signer.sign(seq + 1)
    assert signer.sign(seq) == sign(secret, generation_id, seq, key_id)


@given(st.integers(0, 10**16 - 1), st.integers(0, 99_999), st.integers(0, 10**18 - 1))
def test_round_trip_and_size(seq, partition, offset):
    """Every id that can be made is read back, is at most 128 bytes, and needs no escaping in any header."""
    text = render(seq, partition, offset, SIG)
    assert parse(text) == Cursor(seq, partition, offset, SIG)
    assert len(text.encode()) <= CURSOR_BYTES_MAX
    assert re.fullmatch(r"[A-Za-z0-9._-]+", text)


def test_plain_seq():
    """A plain integer is a position without hint and signature."""
    assert parse("41") == Cursor(41, None, None, None)


GOOD = render(41, 17, 88231, SIG)
MALFORMED = {
    "empty": "",
    "blank": " ",
    "space before": " 41",
    "newline behind": "41\n",
    "newline behind a whole one": GOOD + "\n",
    "NUL": "41\0",
    "sign": "+41",
    "negative": "-1",
    "leading zero": "041",
    "leading zero in a whole one": "0" + GOOD,
    "fraction": "4.1",
    "exponent": "4e1",
    "underscore": "4_1",
    "Arabic digits": "٤١",
    "full-width digits": "４１",
    "17 digits": "1" * 17,
    "a word": "latest",
    "two": f"{GOOD},{GOOD}",
    "no signature": "41-17.88231",
    "empty signature": "41-17.88231-",
    "short signature": GOOD[:-1],
    "long signature": GOOD + "A",
    "padded signature": GOOD[:-1] + "=",
    "plain base64 alphabet": GOOD[:-1] + "+",
    "no offset": f"41-17-{SIG}",
    "negative offset": f"41-17.-1-{SIG}",
    "partition too long": f"41-123456.1-{SIG}",
    "offset too long": f"41-17.{'1' * 19}-{SIG}",
    "no seq": f"-17.1-{SIG}",
    "far too long": "1" * 100_000,
    "quoted": f'"{GOOD}"',
    "lone surrogate": "\ud800",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_malformed(text):
    """What is no cursor is refused as such, and the text is not echoed."""
    with pytest.raises(CursorMalformed) as caught:
        parse(text)
    assert text.strip() == "" or text not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    """No text at all makes the parser raise anything but its own error."""
    try:
        found = parse(text)
    except CursorMalformed:
        return
    assert found.seq >= 0


def test_good_under_any_secret_in_force():
    """A cursor of the newest and of an older secret is good; of a retired one it is not."""
    presented = parse(render(41, 17, 88231, sign(OLD_SECRET, GENERATION_ID, 41, "key-1")))
    assert verify([SECRET, OLD_SECRET], GENERATION_ID, presented, "key-1")
    assert not verify([SECRET], GENERATION_ID, presented, "key-1")


@pytest.mark.parametrize(
    ("generation_id", "seq", "key_id", "sig"),
    [
        pytest.param(GENERATION_ID[:-1] + "c", 41, "key-1", SIG, id="another generation"),
        pytest.param(GENERATION_ID, 42, "key-1", SIG, id="another seq"),
        pytest.param(GENERATION_ID, 41, "key-2", SIG, id="another key"),
        pytest.param(
            GENERATION_ID, 41, "key-1", SIG[:-1] + ("A" if SIG[-1] != "A" else "B"), id="another signature"
        ),
        pytest.param(GENERATION_ID, 41, "key-1", None, id="none"),
        pytest.param(GENERATION_ID, 41, "key-1", "", id="an empty one"),
    ],
)
def test_forged(generation_id, seq, key_id, sig):
    """A signature is good for its own generation, seq and key id only, and its last bits count too."""
    assert not verify([SECRET], generation_id, Cursor(seq, 17, 88231, sig), key_id)


def test_partition_and_offset_are_hints():
    """The hint is not signed: a stale one is still a good cursor."""
    assert verify([SECRET], GENERATION_ID, Cursor(41, 0, 0, SIG), "key-1")


def test_constant_time(monkeypatch):
    """Every secret is compared by the constant-time function, also after a match."""
    compared = []

    def compare(expected, presented):
        compared.append((expected, presented))
        return expected == presented

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    assert verify([SECRET, OLD_SECRET], GENERATION_ID, Cursor(41, 1, 1, SIG), "key-1")
    presented = SIG.encode()
    assert compared == [
        (presented, presented),
        (sign(OLD_SECRET, GENERATION_ID, 41, "key-1").encode(), presented),
    ]


def test_resumption_token():
    """The token beside the id carries the same signature."""
    assert resumption_token(GENERATION_ID, 41, SIG) == f"resumption_id={GENERATION_ID}&seq=41&sig={SIG}"
