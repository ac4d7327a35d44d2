"""The pages of ``kafkalite ui``: the topics and groups of a cluster, its transactions, and the reports of streams.

Requests are answered by threads of the web server, on loopback only. Nothing here changes a cluster or a file.
"""
