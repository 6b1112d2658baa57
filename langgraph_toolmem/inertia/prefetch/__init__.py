"""Prefetch: look-ups that the model is likely to ask for, or is asking for, run before its answer is complete.

A look-up begins when it is likely by the record (the shortcut's `InertiaForecast`), or when the streamed answer of the
model contains all of its arguments. If the model asks for exactly that tool with exactly those arguments, the result is
ready; otherwise it is discarded. (Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.)

==============  ==============================================================
``settings``    `Prefetch`: how likely, how many, how long
``tools``       the tools that qualify, and the reasons why others do not
``choice``      the calls that are likely enough
``task``        one call that runs apart from the run, and its result
``batch``       the calls of one answer, and the listener to a streamed answer
``registry``    the calls of a memory, until they are served or thrown away
``prefetcher``  the work around a model call
==============  ==============================================================
"""

from __future__ import annotations

from langgraph_toolmem.inertia.prefetch.batch import AnswerListener, PrefetchBatch
from langgraph_toolmem.inertia.prefetch.choice import Lookup, choose, least_probability
from langgraph_toolmem.inertia.prefetch.prefetcher import Prefetcher
from langgraph_toolmem.inertia.prefetch.registry import Registry
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.prefetch.tools import Interceptors, held_back, qualified

__all__ = [
    "AnswerListener",
    "Interceptors",
    "Lookup",
    "Prefetch",
    "PrefetchBatch",
    "Prefetcher",
    "Registry",
    "choose",
    "held_back",
    "least_probability",
    "qualified",
]
