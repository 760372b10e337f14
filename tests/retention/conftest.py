"""An organisation to act in; and after every test here, case and operation say the same."""

from tests.worlds import the_machines_agree, world

__all__ = ["the_machines_agree", "world"]
