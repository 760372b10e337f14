"""Signing in and out, and changing between the organisations one belongs to."""

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts.models import User
from approvals.console.entrance import MEMBER, memberships, memberships_of, not_allowed


class SignInForm(AuthenticationForm):
    """E-mail and password of somebody who belongs to an organisation."""

    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "E-mail and password do not match an account.",
    }

    def confirm_login_allowed(self, user: User) -> None:
        """Refuses who belongs nowhere, and says so: only whoever knows the password learns it."""
        super().confirm_login_allowed(user)
        if not memberships_of(user.pk):
            raise ValidationError(
                "Your account belongs to no organisation. Ask an admin of yours to add you again.",
                code="no_organisation",
            )


class SignIn(LoginView):
    """The sign-in page. A person with several organisations starts in the oldest and can change under the own name."""

    template_name = "registration/login.html"
    authentication_form = SignInForm

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Signs in, in the first of the person's organisations."""
        answer = super().form_valid(form)
        self.request.session[MEMBER] = memberships_of(form.get_user().pk)[0].pk
        return answer


def organisation(request: HttpRequest) -> HttpResponse:
    """Goes on in another organisation of the same person; any other value changes nothing."""
    if request.method != "POST":
        return not_allowed(request, ("POST",))
    chosen = request.POST.get("member", "")
    for each in memberships(request):
        if str(each.pk) == chosen:
            request.session[MEMBER] = each.pk
    return redirect("queue")
