"""What the tests of pictures share."""

from pathlib import Path

import pytest

VARIANTS = Path(__file__).parent.parent.parent / "samples" / "variants"


@pytest.fixture
def variants():
    return sorted(VARIANTS.glob("*.json"))
