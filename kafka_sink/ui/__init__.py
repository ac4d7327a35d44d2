"""The pages of ``kafkalite ui``: what is in a cluster, who reads it, and what a stream's report says.

Requests are answered by threads of the web server, on loopback only. Nothing here changes a cluster or a file.
"""
