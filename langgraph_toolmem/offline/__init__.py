"""Tools around a memory: replay of logs and cold start."""
