"""Attempts to refute what `accounting` claims and `privkde` does."""
