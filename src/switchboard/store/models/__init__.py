"""What models cost and learned: usage, classification and memos."""
