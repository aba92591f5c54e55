"""What is tiring in the source, counted: records of one shape, names of functions, files that every feature edits."""
