"""``triton.experimental``: ``gluon``, whose names programs can import, and whose kernels this version does not run."""
