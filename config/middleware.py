"""What every console page needs beyond Django's own middleware."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.cache import add_never_cache_headers


class ConsoleMiddleware:
    """Pages of a signed-in person are never kept by a browser: Back must not show a decision bar of yesterday."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answers, with ``Cache-Control: no-store`` unless the view chose otherwise."""
        response = self.get_response(request)
        if "Cache-Control" not in response.headers:
            add_never_cache_headers(response)
            response.headers["Cache-Control"] += ", no-store"
        return response
