"""Entity tags of cases: ``"<revision>-<first 8 hex of the digest>"``, strong, parsed strictly (RFC 9110, 8.8.3)."""

import re
from dataclasses import dataclass

from approvals.models import Case


class PreconditionRequired(Exception):
    """Say which revision you saw: send its ETag in If-Match."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


class MalformedPrecondition(Exception):
    """If-Match must be exactly one entity tag as this API gave it, quotes included, such as "6-9f2c41ab"."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


@dataclass(frozen=True, slots=True)
class Tag:
    """What somebody saw: a revision, and the beginning of the digest it had."""

    revision: int
    digest: str

    def __str__(self) -> str:
        return f'"{self.revision}-{self.digest}"'

    def matches(self, case: Case) -> bool:
        """Whether the case is still what this tag names."""
        return self == tag_of(case)


def tag_of(case: Case) -> Tag:
    """The case's current tag."""
    return Tag(case.revision, case.proposal.digest[:8])


# A compressing proxy may weaken the tag on its way out or append its coding to it (nginx, Apache mod_deflate); our
# bodies differ by coding only, so both still name the same revision.
_FORM = re.compile(
    r'(?:W/)?"(?P<revision>[1-9][0-9]{0,8})-(?P<digest>[0-9a-f]{8})(?:-gzip|-br|;gzip)?"', re.ASCII
)


# Any one strong tag is well-formed; one that we never gave matches no case, which is a 412 and not a 400.
_STRONG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_NOT_OURS = Tag(0, "")


def parse(header: str | None) -> Tag:
    """The tag an If-Match names. Raises PreconditionRequired or MalformedPrecondition; never "no precondition"."""
    if header is None:
        raise PreconditionRequired
    tag = header.strip(" \t")
    if form := _FORM.fullmatch(tag):
        return Tag(int(form["revision"]), form["digest"])
    if _STRONG.fullmatch(tag):
        return _NOT_OURS
    raise MalformedPrecondition
