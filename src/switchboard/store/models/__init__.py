"""What models cost and learned: usage, classification, memos and histories."""
