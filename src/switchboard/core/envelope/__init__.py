"""Reading envelopes: `read.py` chooses between `fast.py` (msgspec) and `strict.py` (pydantic, which explains).

`stored.py` is the form in the database.
"""
