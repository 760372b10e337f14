"""``demo.json``: where the running demo answers, and the keys and passwords of its labelled people."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.models import Tenant
from config.demo.seed import Organisation


def path() -> Path:
    """The file, in the folder of everything the demo makes."""
    directory: Path = settings.VAR_DIR
    return directory / "demo.json"


def read() -> dict[str, Any] | None:
    """The handles of the demo tenants there are, or None where there are none (a new folder, a new database)."""
    try:
        handles: dict[str, Any] = json.loads(path().read_text())
        known = Tenant.objects.filter(pk=UUID(handles["tenant"])).exists()
    except (FileNotFoundError, ValueError, KeyError):
        return None
    return handles if known else None


def write(handles: dict[str, Any]) -> None:
    """Replaces the file whole, for its owner alone: it holds passwords."""
    unfinished = path().with_suffix(".unfinished")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(handles, file, indent=2)
        file.write("\n")
    unfinished.replace(path())


def of(first: Organisation, second: Organisation) -> dict[str, Any]:
    """The handles of two organisations just made."""
    return {
        "base_url": settings.BASE_URL,
        "sandbox_url": settings.SANDBOX_URL,
        "tenant": str(first.tenant.pk),
        "agent_key": first.agent_key,
        "second_tenant_agent_key": second.agent_key,
        "users": {
            handle: {"username": person.email, "password": person.password}
            for handle, person in first.people.items()
        },
    }
