"""One self-contained HTML page: is the memory safe and worth it, and its tool graph to explore."""

from langgraph_toolmem.page.render import render_page

__all__ = ["render_page"]
