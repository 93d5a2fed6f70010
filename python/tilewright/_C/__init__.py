"""``triton._C``: where programs look for the native module of the official package."""
