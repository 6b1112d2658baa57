"""The navigator: which tools can produce what another one needs (NaviAgent, arXiv 2506.19500)."""
