"""Changes of the dependency graph over time (NaviAgent, section 5): pruning and propagation.

``evolution``  the measures: which tools leave, and how weights follow recent use
``changes``    the same for a memory, which keeps the decisions in its evidence graph
"""
