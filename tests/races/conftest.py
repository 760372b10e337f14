"""An organisation to act in; every test here commits, and afterwards case and operation say the same."""

import pytest

from tests.worlds import the_machines_agree, world

__all__ = ["the_machines_agree", "world"]


@pytest.fixture
def db(transactional_db: None) -> None:
    """Two connections see each other's rows only once they are committed."""
