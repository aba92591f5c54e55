"""Imported last by what processes are forked from: what is loaded stays.

Looking for garbage in it would find none, and would copy all of it into the process that looks.
"""

import gc

gc.freeze()
gc.set_threshold(20_000, 20, 50)  # as `switchboard` has it
