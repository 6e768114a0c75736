"""What the client's tests share."""

import pytest


@pytest.fixture(params=[True, False], ids=["blocking", "async"])
def blocking(request):
    return request.param
