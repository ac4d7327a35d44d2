"""The commands of ``kafkalite``, one module each.

Run on the main thread. No other package imports them; they must not contain functions that two of them need.
"""
