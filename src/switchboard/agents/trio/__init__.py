"""Engine `trio`: a router plans, tools and a specialist do the steps, a small model presents the result.

Begin with `engine.py`.
"""
