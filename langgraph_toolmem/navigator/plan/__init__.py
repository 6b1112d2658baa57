"""Chains of calls from known values to a target (NaviAgent, sections 4 and 6).

``problem``    one search as a problem: its settings, inputs, and the choices for each
``alphabeta``  the most reliable set of choices, by backward alpha-beta search
``annealing``  the fittest one by the paper's measure, by simulated annealing with a population
``planner``    the parts of a plan; chains for targets, with other routes, and a replacement when a call failed
"""
