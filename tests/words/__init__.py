"""Whose words are the parts of a message: mails as programs really write them, with the truth, and how it is measured.

`python -m tests.words` prints the table; `tests/unit/test_words_corpus.py` asserts it. Next: `measure.py`.
"""
