"""Recall of past runs: which are worth showing for a new request, and how many."""
