"""One Hypothesis profile for everyone: the same examples on every run, and no clock in the verdict."""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("ci")
