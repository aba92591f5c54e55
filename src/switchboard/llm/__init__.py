"""Asking a model, through a provider's API or a command line.

In: a `Request` of `domain/llm.py`; out: a `Report` with the reply, and every attempt with its outcome, tokens, cost and
time. Begin with `port.py`; `build.py` makes sessions from settings, `dispatch.py` decides which model is asked.
"""
