"""What butlers find and read in the mailboxes of persons and households, when they are asked."""
