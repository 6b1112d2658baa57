"""Folders that tests look into."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
DATA = ROOT.parent / "shared" / "data"
"""Recorded runs; not there on a user's machine."""
