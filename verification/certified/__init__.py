"""The certified layer: a plan's own numbers at full size, by its own accountant and by an independent route."""
