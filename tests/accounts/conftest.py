"""An organisation to act in."""

from tests.worlds import world

__all__ = ["world"]
