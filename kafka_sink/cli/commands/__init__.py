"""The commands of ``kafkalite``, one module each.

Run on the main thread. No other package imports them; they must not hold what two of them need.
"""
