"""Accounts of channels: their questions, their sign-in, their files, and how they are.

The command line and the page are two faces of it. Of the server's answers only values enter, as the command line may be
on another machine, or no server may run. Next: `questions.py`, `adding.py`.
"""
