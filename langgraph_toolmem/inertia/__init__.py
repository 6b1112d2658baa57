"""The inertia shortcut: may the next call be made without asking the model? (AutoTool, arXiv 2511.14650.)"""
