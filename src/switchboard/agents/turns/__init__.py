"""The tool loop of engines with models, and its equipment. Begin with `equipment.py`."""
