"""The suite for a machine with an NVIDIA GPU: device tests, and benchmarks beside torch and the official triton.

`pack` (`make gpu`) makes the folder that travels; `suite` runs there, and starts `measure` once for each case.
"""
