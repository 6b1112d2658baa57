"""The published scorer of links (NaviAgent, arXiv 2506.19500, section 3): heterogeneous-graph attention, in torch.

`train_links(memory)` trains on what a memory has seen, on a CPU or on CUDA, and leaves a table of scores
(`navigator.learned`) that is read without torch. Extra ``hgt``; nothing else imports torch.

On no set of ours did message passing rank links better than features of the pair alone, and plans gain little (1.4 and
1.0 points): it is here because it is part of the published method. A table is used only if it ranks held-out links
better than structure does.

``model``  attention over relations, encoders, the separable head
``train``  the graph as tensors, both losses, training, the table
"""

from __future__ import annotations

from langgraph_toolmem.hgt.train import Training, train_links

__all__ = ["Training", "train_links"]
