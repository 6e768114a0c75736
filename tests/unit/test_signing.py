"""Which secret signs, and which is good no more, at the edges of their times."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from schemas.cursor import Cursor, sign
from schemas.ids import uuid7
from schemas.settings import Settings
from schemas.signing import Signing, SigningSecret

T0 = datetime(2026, 11, 29, 12, tzinfo=UTC)
T0_US = int(T0.timestamp()) * 1_000_000
HOUR_US = 3_600_000_000


def signing(*secrets):
    """Give the secrets of a process."""
    return Signing([SigningSecret.model_validate(secret) for secret in secrets])


def begun(hours):
    """Give the id of a generation that began so long after T0."""
    return uuid7((T0_US + int(hours * HOUR_US)) // 1000, 7)


def test_the_one_in_force_at_the_start_signs_for_ever():
    """A generation keeps its secret however late it is read; a new one signs what starts at its instant and after."""
    both = signing({"secret": "new", "since": T0}, "old")
    for now_us in (T0_US - HOUR_US, T0_US, T0_US + 1000 * HOUR_US):
        assert both.secret_of(begun(-0.001), now_us) == b"old"
        assert both.secret_of(begun(0), now_us) == b"new"
        assert both.secret_of(begun(1), now_us) == b"new"


def test_a_retired_secret_is_good_no_more():
    """From its `until` on its cursors are refused, and the oldest that is still good signs in its place."""
    three = signing(
        {"secret": "new", "since": T0 + timedelta(hours=2)},
        {"secret": "middle", "since": T0},
        {"secret": "old", "until": T0 + timedelta(hours=1)},
    )
    generation_id = begun(-1)
    cursor = Cursor(3, 0, 0, sign(b"old", generation_id, 3, "k"))
    assert three.verify(generation_id, cursor, "k", T0_US + HOUR_US - 1)
    assert not three.verify(generation_id, cursor, "k", T0_US + HOUR_US)
    assert three.secret_of(generation_id, T0_US + HOUR_US) == b"middle"
    again = Cursor(3, 0, 0, three.sign(generation_id, 3, "k", T0_US + HOUR_US))
    assert three.verify(generation_id, again, "k", T0_US + 9 * HOUR_US)


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        (["a", "b"], "since"),
        ([{"secret": "a", "since": T0}, {"secret": "b", "since": T0}], "newest first"),
        ([{"secret": "a", "until": T0}], "newest signing secret has no `until`"),
        ([{"secret": "a", "since": T0}, {"secret": "b", "since": T0, "until": T0}], "behind its `since`"),
        ([{"secret": "a", "since": datetime(2026, 11, 29)}], "timezone"),  # noqa: DTZ001 - that is the point
    ],
)
def test_secrets_that_contradict_one_another(secrets, said):
    """Who signs what must be known at every instant; what is wrong is said without the secret."""
    with pytest.raises(ValidationError, match=said):
        Settings(secrets={"cursor": secrets})


def test_a_bare_secret_is_one_without_beginning_and_end():
    """The short form of a configuration that never rotated stays good, and stands as the oldest beside a new one."""
    settings = Settings(secrets={"cursor": [{"secret": "new", "since": T0.isoformat()}, "s3cret-old"]})
    assert Signing(settings.secrets.cursor).secret_of(begun(-1), T0_US) == b"s3cret-old"
    assert "s3cret" not in repr(settings)
