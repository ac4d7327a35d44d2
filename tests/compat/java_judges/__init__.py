"""Kafka's Java client and the JDK as judges of what people paste: each case is judged by both, and so is random text.

``java/`` has a class for each kind of case, ``judged.py`` says what belongs to it here, and ``judging.py`` compares.
"""
