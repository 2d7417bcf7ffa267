import pytest

from models.families.compact import CompactCaptioner
from tests.models.families.compact.tiny import tiny_captioner


@pytest.fixture(scope="session")
def captioner() -> CompactCaptioner:
    """Shared by all tests of this folder, which leave it as it is."""
    return tiny_captioner()
