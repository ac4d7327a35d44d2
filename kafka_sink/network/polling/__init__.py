"""The selector: the order in which channels are served, and their time-outs."""
