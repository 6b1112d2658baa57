"""One HTML page without external files: whether the memory is safe and worth it, and its tool graph."""

from langgraph_toolmem.page.render import render_page

__all__ = ["render_page"]
