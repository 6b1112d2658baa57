"""The papers' own rules, one module or folder each.

The default of the memory is what measured best, so it differs from each paper somewhere. What the papers publish is
kept here to compare with. Only the named constructors and operations that ask for a published rule import it
(`tests/unit/test_layers.py` lists them). Each module names its source and equations, what the default does otherwise,
and the figures of both where somebody measured them. Equations have numbers of the module's own, since the papers'
texts that are available have none; sections are those of the project's reading of each paper.

[P] marks what a paper says, [R] our reading where it says too little, [O] our own choice.
"""
