"""Where providers send their events: ``POST /hooks/<tool id>``. Answered with 200 only once the event is stored."""

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from workers import inbound


@csrf_exempt  # the signature is the proof; a provider has no session
@require_POST
def receive(request: HttpRequest, tool_id: int) -> HttpResponse:
    """200: stored, now or before. 400: not the provider's. 404: no such hook. 413: too large."""
    try:
        inbound.receive(
            tool_id=tool_id, payload=request.body, signature=request.headers.get("Stripe-Signature", "")
        )
    except RequestDataTooBig:
        return _said("The event is too large. Nothing was stored.", 413)
    except UnreadablePostError:
        return _said("The event was cut off. Nothing was stored; send it again.", 400)
    except inbound.NoHook:
        return _said(str(inbound.NoHook.__doc__), 404)
    except inbound.RefusedEvent as refusal:
        return _said(f"{refusal} Nothing was stored.", 400)
    return _said("Stored.", 200)


def _said(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
