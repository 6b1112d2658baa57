"""The report: numbers and sentences."""
