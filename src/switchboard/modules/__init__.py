"""What butlers can look up and do: packages that know nothing of each other, and the kernel that opens them."""
