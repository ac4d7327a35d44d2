"""Tests against a real Kafka. The folder is a package, which is the scope of its fixtures."""
