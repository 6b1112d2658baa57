"""Which tools a model is shown for a request: complete chains before single hits, within a bound.

``candidates``   tools and chains for a request, and for a run that goes on
``selection``    the choice among them, each tool with its reason
``search_tool``  a tool with which the model asks for more
"""
