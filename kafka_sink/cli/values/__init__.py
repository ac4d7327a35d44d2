"""Keys and values as JSON and back, with schemas and without.

Pure functions on the main thread. This package must not know an option of the command line.
"""
