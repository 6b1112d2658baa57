"""The decider: a chat model that answers, asks, searches or calls tools (NaviAgent, arXiv 2506.19500).

``decision``   the record of a run, the form of one decision, and its prompt
``rounds``     from a decision to its calls, and from their results to the next decision; other ways after a failure;
               the host's guards around calls
``recording``  decisions kept for fine-tuning
"""
