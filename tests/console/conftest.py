"""An organisation to act in, and what a page needs around it."""

from tests.worlds import the_machines_agree, world

__all__ = ["the_machines_agree", "world"]
