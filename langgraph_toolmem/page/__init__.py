"""The report as one HTML page without external files: safety, savings and the tool graph."""

from langgraph_toolmem.page.render import render_page

__all__ = ["render_page"]
