"""Prefetch: look-ups that the model is likely to ask for, or is asking for, run before its answer is complete.

A look-up begins when it is likely by the record (the candidates of the shortcut's decision), or when the streamed
answer of the model holds all of its arguments. If the model asks for exactly that tool with exactly those arguments,
the result is ready; otherwise it is thrown away. (Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.)

============  ==================================================================
``settings``  `Prefetch`: which tools, how many, how likely
``qualify``   which tools and which calls may be prefetched
``executor``  a call that runs without the host's callbacks, and the tool that serves its result
``serve``     the model is asked, it streams, it answers, a tool is called
``record``    counts, and their report
============  ==================================================================
"""
