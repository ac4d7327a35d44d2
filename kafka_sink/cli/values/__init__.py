"""Keys and values as JSON and back, with schemas and without.

Pure functions on the main thread. This package must not depend on the options of the command line.
"""
