"""``triton.experimental``: languages beside the official one, of which tilewright has none.

``from triton.experimental import gluon`` is an ``ImportError``, which programs that can do without expect.
"""
