"""Prefetch: the look-ups that the model is likely to ask for run while it is thinking; the model decides all the same.

If it asks for exactly that tool with exactly those arguments, the result is there already; if not, it is thrown away.
(The idea: Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.) Nothing is decided anew: the candidates of
the shortcut's decision are taken as they are, whether the shortcut acts, is in shadow or knows next to nothing.

================  ==================================================================
``settings``      `Prefetch`: which tools, how many, how likely
``qualify``       which tools may be run ahead, and why others may not
``choice``        which of the foreseen calls are run ahead of one model call
``surroundings``  what a tool that runs ahead sees of the host: no callbacks, no checkpoints
``inside``        running a tool's inside, and the stand-in that serves its result
``handles``       calls under way, and whose answer of the model they hang on
``ahead``         the three moments: the model is asked, it answers, a tool is called
================  ==================================================================
"""
