"""One model call: the call, the steps, hints, providers, and the host's side."""
