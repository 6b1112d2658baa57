"""The decider (NaviAgent, arXiv 2506.19500): what it is asked, how its answer is read, what follows from it."""
