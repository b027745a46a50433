"""Measurements, run by `make bench` and `make bench-peers`; not part of the distribution."""
