"""Hostile documents: honest ones, mutated, for every reader of what somebody else wrote."""
