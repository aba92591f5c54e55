"""Engine `trio`: a router plans, tools and a specialist do the steps, a small model presents the result.

`port.py` says what the executor wants of a planner. Not yet: the engine itself.
"""
