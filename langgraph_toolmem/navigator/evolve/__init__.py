"""How the dependency graph changes with time (NaviAgent, section 5): pruning, propagation.

``evolution``  the measures: which tools leave, how weights follow recent use, what constraints change
``changes``    the same for a memory: what is decided is kept in its evidence graph
"""
