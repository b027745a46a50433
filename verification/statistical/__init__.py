"""Checks by sampling, each with a proved false-alarm rate."""
