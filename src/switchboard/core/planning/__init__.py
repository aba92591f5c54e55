"""Plans: turns of several steps. Decisions only; nothing here asks a model or runs a tool.

`menu.py` and `form.py` say what a plan may use, `ladder.py` reads one out of a model's answer, `templates.py` has those
that need no model, `machine.py` runs them step by step, `views.py` and `prompts.py` show them to models, `outcome.py`
says what comes of them. The engine `trio` carries them out.
"""
