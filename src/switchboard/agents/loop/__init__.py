"""The tool loop of engines whose butlers have models, and what it works with. Begin with `equipment.py`."""
