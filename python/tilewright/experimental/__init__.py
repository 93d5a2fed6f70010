"""``triton.experimental``: ``gluon``, the language of kernels that state their layouts."""
