"""Learned links: how likely an output of one tool feeds an input of another, learned from what the memory has seen.

``views``     what is said of tools, as vectors
``features``  features of a pair of tools
``plain``     a logistic regression on them: fitting, negatives, validation
``scorer``    what was learned, as a scorer of links, and its table
``refit``     fitting in the background; which scorer plans use
"""
