"""``triton._C``: the package in which programs look for the official native module."""
