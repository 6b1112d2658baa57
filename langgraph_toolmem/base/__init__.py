"""What everything stands on: errors, keys, checks."""
