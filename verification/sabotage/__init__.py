"""Saboteurs: faults that are planted to see whether the checks find them. A check that never fails is a defect."""

from verification.reporting.document import Outcome
from verification.sabotage.matrix import Matrix, Row
from verification.sabotage.saboteur import Saboteur
from verification.sabotage.trying import run_matrix, saboteurs

__all__ = ["Matrix", "Outcome", "Row", "Saboteur", "run_matrix", "saboteurs"]
