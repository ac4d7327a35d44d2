"""The options of clients: names, types, defaults, and the names that Java and other clients have."""
