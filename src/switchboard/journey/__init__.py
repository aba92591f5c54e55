"""The way of a message, leg by leg: accept → decide → (classify →) turn → reply. READ HERE FIRST.

    accept.py    a door hands in an envelope; it is stored once, with its decision, before anyone is told "accepted"
    decide.py    what the rules in force (rulebook.py) say of it; what nobody can take is a dead letter at once
    classify.py  what no rule decides waits in a lane of its conversation until a model is asked; then it is decided
    turn.py      a worker has claimed a delivery; the butler's engine answers, declines or fails; all of it in one write
    reply.py     the answer goes back to where the message came from: posted, pulled by a connector, or read at the door

Each leg is load → core → save. Legs never import each other: they meet in the database, so each can run in another
process, and a crash between two of them loses nothing. Messages of one conversation are delivered in the order in which
they were accepted: behind one that waits to be classified, all later ones wait.
"""
