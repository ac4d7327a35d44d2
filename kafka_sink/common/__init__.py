"""Layer 0: the basis of all other packages. It imports no other package of the project."""
