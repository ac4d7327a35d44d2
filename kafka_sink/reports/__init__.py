"""The reports of writes: the lines of the option reportPath, and what is made of them."""
