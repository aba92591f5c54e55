"""What models cost and learned: usage, classification, facts, memos and histories."""
