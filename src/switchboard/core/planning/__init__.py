"""Plans: turns of several steps. Decisions only; nothing here asks a model or runs a tool.

`menu.py` and `form.py` say what a plan may use, `ladder.py` reads plans from a model's answers, `templates.py` has
plans that need no model, `machine.py` runs plans step by step, `views.py` and `prompts.py` show them to models,
`outcome.py` determines their result. The engine `trio` carries them out.
"""
