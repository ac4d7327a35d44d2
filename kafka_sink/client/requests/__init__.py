"""Requests and their answers as values, without sending or waiting."""
