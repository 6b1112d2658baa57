"""The tool dependency graph (NaviAgent, arXiv 2506.19500, section 2): who can give what to whom.

``graph``        tools and parameters, and the links between them
``clusters``     parameters of many tools that mean the same, merged into one node
``vectors``      meanings as vectors, for merging what words do not tell
``links``        how likely a link works: structure, record, or a scorer of one's own
``current``      the graph of a memory, in step with its tools and what its runs showed
"""
