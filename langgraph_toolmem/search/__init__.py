"""Ranking texts by words and by vectors."""
