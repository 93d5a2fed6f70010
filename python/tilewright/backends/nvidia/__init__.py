"""``triton.backends.nvidia``: GPUs of NVIDIA."""
