"""``triton.profiler.language``, as it is where no session records scopes: they do nothing."""

import triton
import triton.language as tl


@triton.jit
def record(is_start: tl.constexpr, scope_name: tl.constexpr):
    pass


@triton.jit
def enter_scope(name: tl.constexpr):
    pass


@triton.jit
def exit_scope(name: tl.constexpr):
    pass


@triton.jit
def allocate_event(name: tl.constexpr):
    return name


@triton.jit
def start_event(event: tl.constexpr):
    pass


@triton.jit
def end_event(event: tl.constexpr):
    pass


@triton.aggregate
class scope:
    name: tl.constexpr

    @triton.constexpr_function
    def __init__(self, name):
        self.name = tl.constexpr(name)

    @triton.jit
    def __enter__(self):
        pass

    @triton.jit
    def __exit__(self, kind, value, traceback):
        pass
