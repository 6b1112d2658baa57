"""How likely an output of one tool feeds an input of another: a trained table, and what training is made of.

``views``     what is said of tools, as vectors
``features``  features of a pair of tools
``plain``     a logistic regression on them: fitting, negatives, validation
``scorer``    what was learned, as a scorer of links, and its table
``trained``   the table of a memory
"""
