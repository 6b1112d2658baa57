"""Words of requests, names and schemas."""
