"""The base of everything: errors, keys, checks."""
