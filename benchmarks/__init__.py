"""Programs that measure, show or study the library, run in a checkout; not part of the distribution."""
