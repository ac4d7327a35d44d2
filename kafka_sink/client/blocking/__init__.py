"""Requests for which the calling thread waits: the admin client, and exchanges with coordinators and leaders."""
