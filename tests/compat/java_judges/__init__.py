"""Kafka's Java client and the JDK judge text that users paste, and random text: kafkalite must read each case alike.

``java/`` has a class for each kind of case, ``judged.py`` lists the kinds, and ``judging.py`` compares the verdicts.
"""
