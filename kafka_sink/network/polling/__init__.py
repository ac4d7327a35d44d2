"""The selector: which channels are served, in which order, and when they are closed."""
