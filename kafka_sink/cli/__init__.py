"""The ``kafkalite`` command: broker, topics, groups, txn, produce, consume, verify, check, report, ui.

It owns options, output and exit codes, on the main thread. It must not contain functions that library users need, too.
"""
