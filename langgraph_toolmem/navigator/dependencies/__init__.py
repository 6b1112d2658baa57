"""The tool dependency graph (NaviAgent, arXiv 2506.19500, section 2): who can give what to whom.

``graph``    tools and parameters, and the links between them
``links``    how likely a link works: structure, record, or a scorer of one's own
``vectors``  parameters that mean the same in other words, by an embedder
``current``  the graph of a memory, in step with its tools and what its runs showed
"""
