"""Cold start: a chat model invents requests from the tools, the agent runs them in a sandbox, and they become entries.

    from langgraph_toolmem.offline.coldstart import Bootstrap, Budget, Sandbox

    sandbox = Sandbox(agent, tools=tools, reset=office.reset, verdict=check)
    progress = Bootstrap(memory, sandbox, model, budget=Budget(queries=50)).run()

**The tools are really executed.** Whatever they can send, pay or delete, they may: give it an agent whose tools act on
a sandbox. A cold start that was killed goes on where it was when it is begun again; `drop` takes its entries away.

===========  ==========================================================================
``sandbox``  the agent, what brings its world back, and what judges a run
``invent``   requests from a chat model, and which of them are taken
``judge``    a chat model's verdict on a run
``budget``   what it may cost; ``meter``: model calls counted before they are made
``progress`` how far it is; on disk: `stores.cold_start`
``keeping``  its entries go into the memory, and are taken away again
``runner``   all together
===========  ==========================================================================

After MemToolAgent (arXiv 2606.07909), which fills an empty memory this way.
"""

from __future__ import annotations

from langgraph_toolmem.offline.coldstart.budget import Budget
from langgraph_toolmem.offline.coldstart.keeping import BOOTSTRAP, drop
from langgraph_toolmem.offline.coldstart.progress import Progress
from langgraph_toolmem.offline.coldstart.runner import Bootstrap
from langgraph_toolmem.offline.coldstart.sandbox import Sandbox

__all__ = ["BOOTSTRAP", "Bootstrap", "Budget", "Progress", "Sandbox", "drop"]
