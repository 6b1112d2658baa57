"""Tools that use a memory from outside: replay, cold start, discovery, fine-tuning data."""
