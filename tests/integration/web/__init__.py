"""The page, in a real browser and without one."""
