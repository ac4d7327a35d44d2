"""The reports of writes: the lines of the option reportPath, and the figures and charts from them."""
