"""Layer 0: the basis of all other packages: values, errors, configuration, clock, threads, locks.

It owns no thread; all threads use it. It imports no other package of the project.
"""
