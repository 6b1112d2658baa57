"""Training of the published scorer of links: `train_links(memory)` and its settings (extra ``hgt``).

The graph model is in `papers.naviagent`, with the paper's other rules. Nothing else imports torch.
"""

from __future__ import annotations

from langgraph_toolmem.papers.naviagent.train import Training, train_links

__all__ = ["Training", "train_links"]
