"""The tools of butlers with a model: files, commands and a shell, web pages, MCP servers, questions to people.

`agents/turns` builds and grants them, and calls them for turns and plans. Next: `ports/tools.py` for what a tool is.
"""
