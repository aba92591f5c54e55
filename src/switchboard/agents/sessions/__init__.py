"""Sessions with a model: one question by an API or by a command line, and the dispatcher that asks several in order.

Begin with `port.py`; `build.py` makes sessions from settings, `dispatch.py` decides who is asked.
"""
