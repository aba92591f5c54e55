"""What butlers have learned, and the summaries of long conversations."""
