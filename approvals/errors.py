"""Every way an act on a case is refused. The docstring is the message; each says what to do next.

Three kinds: *illegal* (the state has no such move), *refused* (policy or content says no), *raced* (somebody was
faster). config/problems.py maps each to its HTTP status, for the API and the pages alike.
"""

from typing import TYPE_CHECKING, ClassVar

from ledger.schemas import Fault
from ledger.states import ControlEventKind

if TYPE_CHECKING:
    from datetime import datetime

    from approvals.models import Case


class Refusal(Exception):
    """The act was refused, and nothing was written."""

    counted_as: ClassVar[ControlEventKind] = ControlEventKind.REFUSED_ACT
    seen_revision: int | None = None

    def __init__(self, message: str | None = None, *, case: "Case | None" = None) -> None:
        super().__init__(message or type(self).__doc__)
        self.case = case


class Illegal(Refusal):
    """The case's state does not allow this. Read the case again to see what it allows."""


class Refused(Refusal):
    """The content or the policy does not allow this."""


class Raced(Refusal):
    """Somebody changed the case first. Read it again, look at what changed, and decide anew."""

    case: "Case"


# Illegal


class StateForbids(Illegal):
    """A case in this state cannot be changed this way. Read the case to see what it allows."""


class AlreadyDecided(Illegal):
    """This case has been decided already. Read it to see by whom and how."""


class InProgress(Illegal):
    """It is being carried out, or may have happened, and can no longer be taken back. Watch the operation."""


class AlreadyExecuted(Illegal):
    """It has happened, and its receipt is stored. To undo it, propose a compensating action."""


class ContentRemoved(Illegal):
    """The case's content was removed, so nobody can decide on it any more. It may be proposed under another step."""


class DeadlinePassed(Illegal):
    """The deadline has passed, so this can no longer be approved. The agent may propose it again."""


class NotPossibleYet(Illegal):
    """This cannot be said of the operation now. `until` says from when on it can, where time alone changes it."""

    def __init__(self, message: str, *, case: "Case", until: "datetime | None" = None) -> None:
        super().__init__(message, case=case)
        self.until = until


class CannotBeAsked(Illegal):
    """This sink cannot be asked what it has done. Ask whoever keeps it, and record what they found."""


class UndoneAlready(Illegal):
    """Another case undoes this effect already. Go on with that one, or see it ended first."""


class NotCompensable(Illegal):
    """Only a proven effect can be undone. Settle the operation first, or look at why it did not happen."""


# Refused


class NotFound(Refused):
    """There is no such case. Check the id, or list the cases you can see."""


class NotPermitted(Refused):
    """Your role does not allow this. Ask an admin of your organisation for the role it takes."""


class PersonRequired(Refused):
    """Only a signed-in person can decide; an agent's key never can. A reviewer decides in the console."""


class SelfApproval(Refused):
    """You stand behind the agent that proposed this, so somebody else has to decide it."""


class InvalidContent(Refused):
    """The content is not valid. `errors` says what is wrong with each member."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__()
        self.faults = faults


class ReasonRequired(Refused):
    """This verdict needs a reason in words. Add one and send it again."""


class AmountMismatch(Refused):
    """The amount you typed is not the amount of this proposal. Look at the amount again before you approve."""


class Disputed(Refused):
    """A finding about this case is open, so it can be neither approved nor carried out. Settle the finding first."""


class EarlierOperationLive(Refused):
    """An earlier operation of this action may still take effect, or has. Settle it before you approve again."""


class SecondPersonNeeded(Refused):
    """You have said so already. This tool needs a second person who says the same on the same evidence."""


class EvidenceRequired(Refused):
    """Say what your word rests on: what you looked at, where, and what it showed."""


class ReferenceRequired(Refused):
    """Give the sink's own reference for the effect, as its records show it."""


class ReferenceTaken(Refused):
    """This reference is another operation's already, and one effect is not two. Look at the sink's record again."""


# Raced


class OperationMoved(Raced):
    """The operation is no longer what you saw: something came in meanwhile. Read it again, and decide on that."""

    counted_as = ControlEventKind.VERSION_CONFLICT


class ConflictingProposal(Raced):
    """This action is proposed already, with other parameters. Revise that case instead, naming its ETag in If-Match."""

    counted_as = ControlEventKind.FINGERPRINT_CONFLICT


class VersionConflict(Raced):
    """The case is no longer at the revision you saw. Nothing was written: read it again, and decide on that."""

    counted_as = ControlEventKind.VERSION_CONFLICT

    def __init__(self, *, case: "Case", seen_revision: int, changed: list[str] | None = None) -> None:
        super().__init__(case=case)
        self.seen_revision = seen_revision
        self.changed = changed or []
