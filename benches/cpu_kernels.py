"""The kernels of `cpu_rows.py` that `kernels.py` does not have, as the users of Triton write them.

A kernel on rows takes one row a program, in a block of the next power of two. A pointwise kernel takes `BLOCK` elements
a program. Both compute in fp32, whatever the type of the elements, and store with the type of the output.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Pointwise


@triton.jit
def gelu_erf_kernel(x_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """GELU by the error function."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(output_ptr + offsets, y, mask=mask)


@triton.jit
def gelu_tanh_kernel(x_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """GELU by its approximation with the hyperbolic tangent."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (1.0 + libdevice.tanh(inner))
    tl.store(output_ptr + offsets, y, mask=mask)


@triton.jit
def silu_kernel(x_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """SiLU."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(output_ptr + offsets, x * tl.sigmoid(x), mask=mask)


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """SiLU of the gate, times the other operand."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(output_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=mask)


@triton.jit
def dropout_kernel(x_ptr, output_ptr, n_elements, p, seed, BLOCK: tl.constexpr):
    """Dropout, as in the tutorial: the offset of an element and the seed determine its random number."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(output_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def where_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """The greater of two elements, by a comparison and a selection."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tl.where(x > y, x, y), mask=mask)


@triton.jit
def shift_kernel(x_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """One step of a mixing function: `(x << 5) ^ (x >> 3)`."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, (x << 5) ^ (x >> 3), mask=mask)


@triton.jit
def relu_backward_kernel(grad_ptr, x_ptr, output_ptr, n_elements, BLOCK: tl.constexpr):
    """The gradient of ReLU."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    grad = tl.load(grad_ptr + offsets, mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tl.where(x > 0, grad, 0.0), mask=mask)


@triton.jit
def clamp_backward_kernel(grad_ptr, x_ptr, output_ptr, n_elements, low, high, BLOCK: tl.constexpr):
    """The gradient of a clamp to the open interval from `low` to `high`."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    grad = tl.load(grad_ptr + offsets, mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tl.where((x > low) & (x < high), grad, 0.0), mask=mask)


@triton.jit
def adam_kernel(
    parameter_ptr,
    grad_ptr,
    mean_ptr,
    square_ptr,
    n_elements,
    step_size,
    beta1,
    beta2,
    eps,
    root_of_correction2,
    BLOCK: tl.constexpr,
):
    """A step of Adam, in place: both moments and the parameters."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    parameter = tl.load(parameter_ptr + offsets, mask=mask)
    grad = tl.load(grad_ptr + offsets, mask=mask)
    mean = tl.load(mean_ptr + offsets, mask=mask)
    square = tl.load(square_ptr + offsets, mask=mask)
    mean = beta1 * mean + (1.0 - beta1) * grad
    square = beta2 * square + (1.0 - beta2) * grad * grad
    parameter -= step_size * mean / (tl.sqrt(square) / root_of_correction2 + eps)
    tl.store(parameter_ptr + offsets, parameter, mask=mask)
    tl.store(mean_ptr + offsets, mean, mask=mask)
    tl.store(square_ptr + offsets, square, mask=mask)


# Rows


@triton.jit
def softmax_rows_kernel(output_ptr, input_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row a program."""
    row_start = tl.program_id(0) * row_stride
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    row = tl.load(input_ptr + row_start + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(row - tl.max(row, axis=0))
    tl.store(output_ptr + row_start + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, output_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    """RMS norm of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps) * weight
    tl.store(output_ptr + row * stride + cols, y, mask=mask)


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The loss of one row of logits a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    label = tl.load(labels_ptr + row)
    logits = tl.load(logits_ptr + row * stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    highest = tl.max(logits, axis=0)
    log_sum = highest + tl.log(tl.sum(tl.exp(logits - highest), axis=0))
    of_label = tl.load(logits_ptr + row * stride + label).to(tl.float32)
    tl.store(loss_ptr + row, log_sum - of_label)


@triton.jit
def row_sum_kernel(x_ptr, output_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The sum of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(output_ptr + row, tl.sum(x, axis=0))


@triton.jit
def row_max_kernel(x_ptr, output_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The maximum of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(output_ptr + row, tl.max(x, axis=0))


@triton.jit
def argmax_kernel(x_ptr, output_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The index of the maximum of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(output_ptr + row, tl.argmax(x, axis=0))


@triton.jit
def cumsum_kernel(x_ptr, output_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """The running sum of one row a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0)
    tl.store(output_ptr + row * stride + cols, tl.cumsum(x, axis=0), mask=mask)


@triton.jit
def sort_kernel(x_ptr, output_ptr, stride, n_cols: tl.constexpr):
    """The elements of one row a program, in ascending order; `n_cols` is a power of two."""
    row = tl.program_id(0)
    cols = tl.arange(0, n_cols)
    x = tl.load(x_ptr + row * stride + cols)
    tl.store(output_ptr + row * stride + cols, tl.sort(x))


@triton.jit
def topk_kernel(x_ptr, output_ptr, stride, n_cols: tl.constexpr, K: tl.constexpr):
    """The `K` greatest elements of one row a program, in descending order; `n_cols` is a power of two."""
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * stride + tl.arange(0, n_cols))
    tl.store(output_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


@triton.jit
def embedding_kernel(ids_ptr, table_ptr, output_ptr, width, BLOCK: tl.constexpr):
    """The row of the table for one id a program."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    start = tl.load(ids_ptr + row) * width
    tl.store(output_ptr + row * width + cols, tl.load(table_ptr + start + cols, mask=mask), mask=mask)


@triton.jit
def quantize_rows_kernel(x_ptr, output_ptr, scale_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """int8 of one row a program, with the scale that takes its greatest magnitude to 127."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    quantized = libdevice.rint(x / scale).to(tl.int8)
    tl.store(output_ptr + row * stride + cols, quantized, mask=mask)
    tl.store(scale_ptr + row, scale)


@triton.jit
def dequantize_rows_kernel(x_ptr, scale_ptr, output_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """One row of int8 a program, times its scale."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0)
    y = x.to(tl.float32) * tl.load(scale_ptr + row)
    tl.store(output_ptr + row * stride + cols, y, mask=mask)


@triton.jit
def batch_norm_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    weight_ptr,
    bias_ptr,
    output_ptr,
    n_channels,
    plane,
    eps,
    BLOCK: tl.constexpr,
):
    """Batch norm of one plane of one image a program, with the statistics of training."""
    number = tl.program_id(0)
    channel = number % n_channels
    factor = tl.load(weight_ptr + channel) / tl.sqrt(tl.load(variance_ptr + channel) + eps)
    offset = tl.load(bias_ptr + channel) - tl.load(mean_ptr + channel) * factor
    pixels = tl.arange(0, BLOCK)
    mask = pixels < plane
    x = tl.load(x_ptr + number * plane + pixels, mask=mask).to(tl.float32)
    tl.store(output_ptr + number * plane + pixels, x * factor + offset, mask=mask)


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, output_ptr, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotary embedding of all heads of one position a program; element `i` is paired with `i + HALF`."""
    position = tl.program_id(0)
    halves = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + position * HALF + halves)[None, :].to(tl.float32)
    sin = tl.load(sin_ptr + position * HALF + halves)[None, :].to(tl.float32)
    heads = position * HEADS + tl.arange(0, HEADS)
    left_offsets = heads[:, None] * (2 * HALF) + halves[None, :]
    left = tl.load(x_ptr + left_offsets).to(tl.float32)
    right = tl.load(x_ptr + left_offsets + HALF).to(tl.float32)
    tl.store(output_ptr + left_offsets, left * cos - right * sin)
    tl.store(output_ptr + left_offsets + HALF, right * cos + left * sin)


# Tiles


@triton.jit
def column_sum_kernel(x_ptr, output_ptr, n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The sums of `BLOCK_N` columns a program."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        acc += tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(output_ptr + cols, tl.sum(acc, axis=0), mask=cols < n_cols)


@triton.jit
def transpose_kernel(x_ptr, output_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    """One square tile a program, transposed."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask)
    out_mask = (cols[:, None] < n_cols) & (rows[None, :] < n_rows)
    tl.store(output_ptr + cols[:, None] * n_rows + rows[None, :], tl.trans(x), mask=out_mask)


@triton.jit
def int8_vector_kernel(
    weight_ptr, scale_ptr, x_ptr, output_ptr, n, k, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """int8 weights with a scale for each row, times a vector: `BLOCK_N` rows a program."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        cols = start + depth
        mask = (rows[:, None] < n) & (cols[None, :] < k)
        weight = tl.load(weight_ptr + rows[:, None] * k + cols[None, :], mask=mask, other=0)
        x = tl.load(x_ptr + cols, mask=cols < k, other=0.0).to(tl.float32)
        acc += tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
    scale = tl.load(scale_ptr + rows, mask=rows < n).to(tl.float32)
    tl.store(output_ptr + rows, acc * scale, mask=rows < n)


@triton.jit
def int8_dot_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    output_ptr,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """`BLOCK_M` vectors times int8 weights that are dequantized before each dot: `BLOCK_N` rows a program."""
    vectors = tl.arange(0, BLOCK_M)
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + vectors[:, None] * k + cols[None, :], mask=cols[None, :] < k, other=0.0)
        mask = (cols[:, None] < k) & (rows[None, :] < n)
        weight = tl.load(weight_ptr + rows[None, :] * k + cols[:, None], mask=mask, other=0)
        acc = tl.dot(x, weight.to(x.dtype), acc, input_precision="ieee")
    scale = tl.load(scale_ptr + rows, mask=rows < n).to(tl.float32)
    tl.store(output_ptr + vectors[:, None] * n + rows[None, :], acc * scale[None, :], mask=rows[None, :] < n)
