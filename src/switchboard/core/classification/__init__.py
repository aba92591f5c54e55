"""The pure parts of routing by a model: the question, the answer, and its interpretation.

`journey/ask.py` puts them together: `source.py` and `history.py` collect the facts, `prompt.py` builds the question;
one session runs; `judge.py` says what the reply means, and `result.py` turns it into segments and outcomes.
"""
