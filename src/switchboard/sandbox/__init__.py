"""Confines commands that a model wrote: they see programs and one workspace, and nothing else of the machine.

The tool `execute_command` and the engine `command` use `run.py`, the tool `bash` uses `session.py`. Next:
`enclosure.py` for what is inside, `syscalls.py` for what the kernel refuses, `watchdog.py` for how much may be used.
"""
