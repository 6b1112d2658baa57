"""One model call, as nodes and middleware see it."""
