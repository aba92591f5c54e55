"""`switchboard init`: from nothing to a butler with a model, by three questions."""
