"""The engine `model`: a model answers, calls tools and remembers. Begin with `engine.py`."""
