"""What the console's smaller forms share: what was typed and is wrong with it, and how an act is answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from approvals.errors import Illegal, NotFound, NotPermitted, ReasonRequired, Refusal


@dataclass(frozen=True, slots=True)
class Form:
    """The typed values by name, and the errors beside them. ``panel``: which of the page's forms it is."""

    panel: str
    values: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, request: HttpRequest, *names: str, panel: str) -> "Form":
        """The fields of these names, trimmed."""
        read = {name: request.POST.get(name, "").replace("\r\n", "\n").strip() for name in names}
        return cls(panel, read)

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def require(self, name: str, *, longest: int, words: str) -> None:
        """Notes an error where the field is empty, too long, or cannot be stored."""
        value = self[name]
        if not value:
            self.errors[name] = words
        elif len(value) > longest:
            self.errors[name] = f"At most {longest} characters; this has {len(value)}. Nothing was recorded."
        elif "\0" in value:
            self.errors[name] = "It holds a character that cannot be stored. Nothing was recorded."


def see_other(url: str) -> HttpResponse:
    """After a recorded act: the page it changed, by GET."""
    answer = HttpResponseRedirect(url)
    answer.status_code = 303
    return answer


def answer_refusal(
    request: HttpRequest, refusal: Refusal, *, back: tuple[str, str] | None = None
) -> HttpResponse:
    """The page that says that nothing was recorded, and why. What is not there raises on, to be answered with 404.

    ``back``: (address, name) of the page to go on from, where that is not the queue.
    """
    if isinstance(refusal, NotFound):
        raise refusal
    status = _STATUSES.get(type(refusal), 409)
    template = f"errors/{409 if status == 422 else status}.html"
    context = {"message": str(refusal), "stands": isinstance(refusal, Illegal), "back": back}
    return render(request, template, context, status=status)


_STATUSES: Mapping[type[Refusal], int] = {NotPermitted: 403, ReasonRequired: 422}
