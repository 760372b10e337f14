"""How fast it is, beside the least SQL that would do and beside what else one might pick. ``make bench`` runs it."""
