"""`python -m langgraph_toolmem`: the `toolmem` program where the folder of scripts is not on the path."""

from __future__ import annotations

from langgraph_toolmem.cli import main

main()
