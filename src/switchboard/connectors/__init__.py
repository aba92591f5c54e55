"""Connectors: the kernel that all platforms have in common, and a package for each platform.

`switchboard connect NAME` runs one account in a process of its own. It knows the HTTP interface of the server and
nothing else of it. A package of a platform imports its SDK late and never another package. Next: `kernel/__init__.py`.
"""
