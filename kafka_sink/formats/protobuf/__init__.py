"""Protobuf payloads from Arrow columns, as Google's libraries serialize messages, without a loop over rows."""
