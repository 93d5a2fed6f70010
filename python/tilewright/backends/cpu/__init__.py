"""``triton.backends.cpu``: the processor."""
