"""The durable engine: work that must happen in order, once, and survive a crash is an item in a lane.

`worker.py` claims and runs, `journal.py` records steps, `batch.py` makes one transaction of many, `notifier.py` wakes.
"""
