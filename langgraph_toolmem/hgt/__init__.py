"""The published scorer of links (NaviAgent, arXiv 2506.19500, section 3): heterogeneous-graph attention, in torch.

Extra ``hgt``; nothing else imports torch, and serving what was learned here needs none.

``attention``  one layer of weighted attention over relations
``model``      encoders, layers and heads
``tensors``    a memory's dependency graph as tensors; neighbourhoods by chance where it is large
``loss``       soft labels, adaptive margin
``train``      training with early stopping and checkpoints
``export``     what was learned as the navigator's table
"""
