"""That content was removed: the row that has to exist before anything is emptied, and that stays for ever."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from ledger.models.operations import Operation
from ledger.triggers import RefuseEarly, insert_only


class Pruning(models.Model):
    """That an operation's content has been emptied: by whom, when and why. Never taken back.

    Refused unless the operation is settled, no finding about it is open, and its horizon is over: the tool's
    retention, or its retry horizon where an erasure was asked for.
    """

    operation = models.OneToOneField(
        Operation, on_delete=models.PROTECT, primary_key=True, related_name="pruning"
    )
    by = models.CharField(max_length=120, help_text="person:…, or retention")
    because = models.CharField(max_length=300)
    is_erasure = models.BooleanField(default=False)
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        triggers: ClassVar = [
            *insert_only("pruning"),
            RefuseEarly(name="pruned_only_past_the_horizon", function="refuse_early_pruning"),
        ]
