"""The reports of writes: the lines of the option reportPath, and what is made of them.

Its callers' threads run it; it owns no thread. It must not connect to anything, and writes no file.
"""
