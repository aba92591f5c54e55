"""The tools of butlers with a model: files of their workspace, pages of the web.

The engine `model` builds and grants them, and calls them between the answers of its model. Next: `ports/tools.py` for
what a tool is.
"""
