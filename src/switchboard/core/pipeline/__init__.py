"""The pure parts of routing by a model: what the model is asked, what it answered, and what that means.

`journey/classify.py` puts them together: `source.py` and `history.py` say what is known, `prompt.py` what is asked;
one session runs; `clis.py` and `transcript.py` read what came of it, `verdict.py` says what it means.
"""
