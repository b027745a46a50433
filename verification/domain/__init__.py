"""Checks of what one user can change: domain, touched instances, shifts, sensitivity."""
