"""Chains of calls from known values to a target (NaviAgent, sections 4 and 6).

``planner``    the parts of a plan; chains for targets, with other routes, and a replacement when a call failed
``search``     one search as a problem, and the most reliable set of choices, by backward alpha-beta search
"""
