"""The connections of a client: their states, versions, and the requests that are in flight on them."""
