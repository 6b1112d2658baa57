"""The base of all methods."""
