"""Halting and resuming, from the pages' forms. They serve the organisation and its tools: the form says which."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from approvals import halts
from approvals.console import halts as halts_page
from approvals.console import tools
from approvals.console.entrance import Visitor, act
from approvals.console.forms import Form, answer_refusal, see_other
from approvals.errors import Refusal


@act
def begin(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """Halts the organisation or pauses a tool."""
    tool = request.POST.get("tool", "") or None
    form = Form.read(request, "reason", panel="pause" if tool else "halt")
    form.require("reason", longest=halts.LONGEST_REASON, words="Say why. Nothing was halted.")
    if form.errors and halts.may(visitor.actor):
        return _again(request, visitor, tool, form)
    try:
        halts.begin(actor=visitor.actor, tool=tool, reason=form["reason"])
    except Refusal as refusal:
        return answer_refusal(request, refusal)
    what = f"{tool} is paused" if tool else "The organisation is halted"
    messages.success(request, f"{what}. Nothing new is sent; calls on the wire finish, and look-ups go on.")
    return see_other(_address(tool))


@act
def end(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """Ends the organisation's halt or a tool's pause, once somebody has read what that means."""
    tool = request.POST.get("tool", "") or None
    if not request.POST.get("sure") and halts.may(visitor.actor):
        return see_other(f"{_address(tool)}?panel=resume#panel-resume")
    try:
        halts.end(actor=visitor.actor, tool=tool)
    except Refusal as refusal:
        return answer_refusal(request, refusal)
    what = f"{tool} goes on" if tool else "The organisation goes on"
    messages.success(request, f"{what}: what waits is taken by the next free worker.")
    return see_other(_address(tool))


def _address(tool: str | None) -> str:
    return reverse("tool", args=[tool]) if tool else reverse("halts")


def _again(request: HttpRequest, visitor: Visitor, tool: str | None, form: Form) -> HttpResponse:
    """The page again, the panel open, what was typed kept."""
    if tool:
        return tools.answer(request, visitor, tool, form)
    return render(request, "approvals/halts.html", halts_page.context(request, visitor, form), status=422)
