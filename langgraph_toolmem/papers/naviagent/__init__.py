"""NaviAgent (arXiv 2506.19500) as published; the default of tool search and plans is `navigator`.

``annealing``  the heuristic search of section 4; by default chains come from the exact alpha-beta search
``evolution``  pruning and weights of section 5; by default the graph only grows, and weights are all-time counts
``train``      the graph model of section 3, in torch, and its training on a memory (`train_links`, extra ``hgt``)
``learned``    the table of scores that training leaves, read without torch; without one, structure and counts weigh

The decider (section 1, `nodes.navi`) and the graph (section 2, `navigator.dependencies`) are part of the default.
"""
