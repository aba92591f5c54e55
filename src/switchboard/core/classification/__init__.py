"""The pure parts of routing by a model: what the model is asked, what it answered, and what that means.

`journey/ask.py` puts them together: `source.py` and `history.py` collect the facts, `prompt.py` builds the question;
one session runs; `judge.py` says what the reply means, and `result.py` turns it into segments and outcomes.
"""
