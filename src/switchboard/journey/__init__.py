"""The path of a message, leg by leg: accept → decide → (classify →) turn → reply. START READING HERE.

    accept.py    an interface submits an envelope; it is stored once, with its decision, before "accepted" is returned
    decide.py    applies the rules in force (rulebook.py); an undeliverable message becomes a dead letter at once
    classify.py  a message that no rule decides waits in a lane of its conversation until a model has been asked
    turn.py      a worker has claimed a delivery; the butler's engine answers, declines or fails; one write
    reply.py     the answer returns to where the message came from: posted, fetched by a connector, or read over the API

Each leg is load → core → save. Legs never import each other: they meet in the database, so each can run in another
process, and a crash between two of them loses nothing. Messages of one conversation are delivered in the order in which
they were accepted: while one waits to be classified, all later ones wait behind it. Programs that embed the
classification submit through submit.py, which decides before it accepts.
"""
