"""``demo.json``: where the running demo answers, and the keys and passwords of its labelled people.

``demo.env`` beside it: what another terminal needs, so that ``manage.py`` works on this demo and its sinks.
"""

import json
import os
import shlex
from collections.abc import Mapping
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
    _replace(path(), json.dumps(handles, indent=2) + "\n")


def environment_path() -> Path:
    """The file for a shell to read: ``. var/demo.env``."""
    return path().with_suffix(".env")


def write_environment(environment: Mapping[str, str]) -> None:
    """Replaces the file whole, each variable exported."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    _replace(environment_path(), "".join(lines))


def hint(needed: str) -> str:
    """What to do where a demo is here and this variable of its sinks is not; empty otherwise."""
    if needed in os.environ or not environment_path().exists():
        return ""
    return f" In this terminal, first: . {shlex.quote(os.path.relpath(environment_path()))}"


def _replace(file: Path, content: str) -> None:
    unfinished = file.with_suffix(".unfinished")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(content)
    unfinished.replace(file)


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
