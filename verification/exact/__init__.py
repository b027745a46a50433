"""The exact layer: true laws of shuffled views by enumeration, against what is claimed."""
