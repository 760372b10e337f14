"""Reading a state machine from its declarations: one declaration serves code, trigger and diagram."""

from collections.abc import Sequence
from typing import Any

from django.db import models
from django_fsm import FSMField


class StateField(FSMField):
    """A django-fsm state, known to migrations as the plain CharField it is in the database."""

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        """As Django's, under CharField's name: a migration must outlive the state-machine package."""
        name, _path, args, kwargs = super().deconstruct()
        kwargs.pop("protected", None)
        return name, "django.db.models.CharField", args, kwargs


def one_of(name: str, field: str, words: type[models.TextChoices]) -> models.CheckConstraint:
    """The database knows the same words as the code: an unknown one is refused, whoever writes it."""
    return models.CheckConstraint(name=name, condition=models.Q(**{f"{field}__in": words.values}))


def declared_moves(model: type[models.Model]) -> list[tuple[str, str]]:
    """Every (source, target) the model's ``state`` field declares, sorted, each once."""
    return sorted({(source, target) for source, target, _name in named_moves(model)})


def named_moves(model: type[models.Model]) -> list[tuple[str, str, str]]:
    """Every (source, target, method) the model's ``state`` field declares, sorted."""
    field = model._meta.get_field("state")
    assert isinstance(field, FSMField)
    return sorted(
        (str(move.source), str(move.target), move.name) for move in field.get_all_transitions(model)
    )
