"""Attacks: lower bounds on ε from telling neighbors apart."""
