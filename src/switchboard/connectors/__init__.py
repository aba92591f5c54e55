"""Connectors: the kernel common to all platforms, and a package for each platform.

`switchboard connect NAME` runs one account in a process of its own. It knows the HTTP interface of the server and
nothing else. A platform's package imports its SDK late, and never imports another platform's. Next:
`kernel/__init__.py`.
"""
