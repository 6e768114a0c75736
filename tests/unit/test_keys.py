"""What becomes of a key's texts: pure, before anything is said to the edges."""

import pytest

from compose.keys import hash_of, new_text, of_settings, revoked, rotated
from schemas.records import KeyEntry, KeyHash
from schemas.settings import ApiKey, Settings

NOW_US = 1_796_000_000_000_000
HOUR_US = 3_600_000_000


def entry(*hashes):
    """Give a key of an operator with these texts."""
    return KeyEntry(tenant="acme", label="x", roles=["caller", "operator"], hashes=list(hashes))


def test_a_rotation_adds_a_text_and_lets_the_old_ones_run_out():
    """The new text has no end, the old ones end with the overlap or before, what has ended is dropped; the rest stays."""
    before = entry(
        KeyHash(sha256="a" * 64),
        KeyHash(sha256="b" * 64, until_us=NOW_US + 1),
        KeyHash(sha256="c" * 64, until_us=NOW_US),
    )
    after = rotated(before, "text", NOW_US, HOUR_US)
    assert [(h.sha256, h.until_us) for h in after.hashes] == [
        (hash_of("text"), None),
        ("a" * 64, NOW_US + HOUR_US),
        ("b" * 64, NOW_US + 1),
    ]
    assert (after.tenant, after.label, after.roles) == ("acme", "x", ["caller", "operator"])


def test_a_rotation_without_overlap_ends_the_old_text():
    """Nothing but the new text is left."""
    after = rotated(entry(KeyHash(sha256="a" * 64)), "text", NOW_US, 0)
    assert after.hashes == [KeyHash(sha256=hash_of("text"))]


def test_a_revoked_key_has_no_text():
    """It is still known, so that nothing in a configuration opens it again."""
    after = revoked(entry(KeyHash(sha256="a" * 64)))
    assert (after.tenant, after.hashes) == ("acme", [])


def test_keys_of_a_configuration_are_one_by_id():
    """Two texts of one id are one key."""
    keys = [ApiKey(id="k", tenant="acme", sha256=c * 64) for c in "ab"]
    held = of_settings([*keys, ApiKey(id="other", tenant="globex", sha256="c" * 64)])
    assert {i: [h.sha256[0] for h in key.entry.hashes] for i, key in held.items()} == {
        "k": ["a", "b"],
        "other": ["c"],
    }
    assert len({new_text() for _ in range(9)}) == 9


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"id": "k", "tenant": "globex", "sha256": "b" * 64}, "two tenants"),
        ({"id": "j", "tenant": "acme", "sha256": "a" * 64}, "same text"),
    ],
)
def test_a_key_is_of_one_tenant_and_a_text_of_one_key(second, said):
    """A configuration that says otherwise is refused at start."""
    with pytest.raises(ValueError, match=said):
        Settings(keys=[{"id": "k", "tenant": "acme", "sha256": "a" * 64}, second])
