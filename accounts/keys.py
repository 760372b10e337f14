"""Agents' keys: made, checked, revoked. ``cs_<prefix>_<secret>`` as a Bearer token (RFC 6750)."""

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.models import Agent, AgentKey

_FORM = re.compile(r"cs_(?P<prefix>[a-z0-9]{12})_(?P<secret>[A-Za-z0-9_-]{43})", re.ASCII)
_LIVE_KEYS = 2  # one in use and its successor, so that a key can be rotated without a gap
_LAST_USE_RESOLUTION = timedelta(minutes=1)  # not a write per call


class TooManyKeys(Exception):
    """This agent already has two live keys. Revoke one before you make another."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def issue(*, agent: Agent, expires_at: datetime | None = None) -> str:
    """Makes a key and returns it in full, the only time it is readable. Raises TooManyKeys."""
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with transaction.atomic():
        # One key at a time for an agent: of two calls at once the second counts what the first has made.
        Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
        if _live().filter(agent=agent).count() >= _LIVE_KEYS:
            raise TooManyKeys
        AgentKey.objects.create(
            agent=agent, prefix=prefix, secret_sha256=_digest(secret), expires_at=expires_at
        )
    return f"cs_{prefix}_{secret}"


def authenticate(presented: str) -> Agent | None:
    """The active agent whose live key this is, or None; compares in constant time."""
    if (form := _FORM.fullmatch(presented)) is None:
        return None
    key = _live().select_related("agent").filter(prefix=form["prefix"], agent__is_active=True).first()
    if key is None or not hmac.compare_digest(key.secret_sha256, _digest(form["secret"])):
        return None
    now = timezone.now()
    AgentKey.objects.filter(pk=key.pk).filter(
        Q(last_used_at=None) | Q(last_used_at__lt=now - _LAST_USE_RESOLUTION)
    ).update(last_used_at=now)
    return key.agent


def revoke(*, agent: Agent, prefix: str) -> bool:
    """Ends a key at once; returns whether a live one was ended."""
    return bool(_live().filter(agent=agent, prefix=prefix).update(revoked_at=timezone.now()))


def _live() -> QuerySet[AgentKey]:
    return AgentKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
