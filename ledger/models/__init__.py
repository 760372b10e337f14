"""Facts: which tools may act, what was approved to happen, each attempt at it, and what is known of the outcome.

The ledger does not know what a case is: an order carries an opaque ``subject`` and the digest that was approved.
"""

from ledger.models.budgets import Budget, BudgetPeriod, Reservation
from ledger.models.controls import ControlEvent, Reconciliation, Sighting, Sweep
from ledger.models.evidence import Attestation, Evidence, Finding, InboundEvent
from ledger.models.operations import Attempt, Operation, Order, Resource
from ledger.models.retention import Pruning
from ledger.models.tools import Halt, Probe, Tool, ToolVersion

__all__ = [
    "Attempt",
    "Attestation",
    "Budget",
    "BudgetPeriod",
    "ControlEvent",
    "Evidence",
    "Finding",
    "Halt",
    "InboundEvent",
    "Operation",
    "Order",
    "Probe",
    "Pruning",
    "Reconciliation",
    "Reservation",
    "Resource",
    "Sighting",
    "Sweep",
    "Tool",
    "ToolVersion",
]
