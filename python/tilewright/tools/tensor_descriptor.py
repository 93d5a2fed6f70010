"""``triton.tools.tensor_descriptor``: descriptors made on the host, still to come."""

from tilewright._missing import missing_names

__getattr__ = missing_names("tilewright.tools.tensor_descriptor", "TensorDescriptor")
