"""The C texts that ``triton.tools.compile`` and ``triton.tools.link`` write, with ``$fields`` to fill in.

Names of the texts that a kernel's parameters could have, too, begin with ``tw_``.
"""

from __future__ import annotations

import re
from string import Template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = """\
#ifndef TW_AHEAD_OF_TIME
#define TW_AHEAD_OF_TIME
/* The types of the CUDA driver. A program may include cuda.h, too, before or after this header. */
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
#ifdef CUDA_VERSION
typedef CUresult tw_result;
#else
typedef int tw_result; /* a CUresult: 0, or the code of an error */
#endif
#endif
"""

HEADER = Template("""\
/* $title */
$metadata
#ifndef $guard
#define $guard

#include <stdint.h>

$types
#ifdef __cplusplus
extern "C" {
#endif

$declarations
#ifdef __cplusplus
}
#endif

#endif
""")

VARIANT_DECLARATIONS = Template("""\
/* Loads the kernel, which the first launch does, too. Returns 0, or the code of an error. */
tw_result load_$name(void);

/* Unloads the kernel. No thread may be launching it. */
void unload_$name(void);

/* Launches the kernel on the grid ($grid). */
tw_result $name($parameters);

/* Launches the kernel on another grid. */
tw_result ${name}_with_grid($grid_parameters);

/* Sets the device of this thread's launches: "cuda:1", "cpu" or "sim:sm_90", a simulated GPU. With
   NULL, it is that of the variable TILEWRIGHT_DEVICE, else "$device", as for a new thread. */
void ${name}_set_device(const char *device);

/* Returns the message of the last call of this thread that failed, or "". Valid until the next. */
const char *${name}_error(void);
""")

VARIANT_SOURCE = Template("""\
/* $title */

#include "$header"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

/* The packed lock: the compiled kernel, and its source for messages. */
static const unsigned char tw_packed[] = {
$bytes
};

static _Atomic(tw_bundle *) tw_opened;
static _Thread_local char tw_message[2048];
static _Thread_local char tw_device[32];

static tw_result tw_fail(tw_result code, const char *message)
{
    snprintf(tw_message, sizeof tw_message, "%s", message);
    return code;
}

static tw_result tw_fail_with(tw_result code, tw_error *error)
{
    tw_fail(code, tw_error_message(error));
    tw_error_free(error);
    return code;
}

static const char *tw_current_device(void)
{
    const char *name = tw_device[0] != '\\0' ? tw_device : getenv("TILEWRIGHT_DEVICE");
    return name != NULL && name[0] != '\\0' ? name : "$device";
}

tw_result load_$name(void)
{
    tw_error *error = NULL;
    tw_bundle *none = NULL;
    if (atomic_load(&tw_opened) != NULL)
        return 0;
    if (tw_interface() != TW_INTERFACE)
        return tw_fail($not_loaded, "the library libtilewright_c has another version than its header");
    tw_bundle *bundle = tw_bundle_from_memory(tw_packed, sizeof tw_packed, &error);
    if (bundle == NULL)
        return tw_fail_with($not_loaded, error);
    if (!atomic_compare_exchange_strong(&tw_opened, &none, bundle))
        tw_bundle_close(bundle); /* Another thread has loaded the kernel. */
    return 0;
}

void unload_$name(void)
{
    tw_bundle_close(atomic_exchange(&tw_opened, NULL));
}

void ${name}_set_device(const char *device)
{
    snprintf(tw_device, sizeof tw_device, "%s", device != NULL ? device : "");
}

const char *${name}_error(void)
{
    return tw_message;
}
$memory
tw_result ${name}_with_grid($grid_parameters)
{
    const uint32_t tw_grid[3] = {$grid_names};
$arguments
    tw_error *tw_failed = NULL;
    if (tw_grid[0] == 0 || tw_grid[1] == 0 || tw_grid[2] == 0)
        return 0;
    tw_result tw_code = load_$name();
    if (tw_code != 0)
        return tw_code;
    if (!tw_bundle_launch(atomic_load(&tw_opened), "$kernel", tw_current_device(), tw_grid,
                          tw_arguments, $count, $stream, &tw_failed))
        return tw_fail_with($not_launched, tw_failed);
    return 0;
}
$grid_functions
tw_result $name($parameters)
{
    const long long tw_grid[3] = {$grid};
    for (int tw_axis = 0; tw_axis < 3; tw_axis++) {
        if (tw_grid[tw_axis] < 0 || tw_grid[tw_axis] > UINT32_MAX) {
            snprintf(tw_message, sizeof tw_message, "the grid of $name has %lld programs along axis %d",
                     tw_grid[tw_axis], tw_axis);
            return $invalid;
        }
    }
    return ${name}_with_grid($grid_call);
}
""")

_GRID_FUNCTIONS = {
    "tw_add": """\
a == LLONG_MIN || b == LLONG_MIN || (b > 0 ? a > LLONG_MAX - b : a <= LLONG_MIN - b)
        ? LLONG_MIN
        : a + b""",
    "tw_sub": "b == LLONG_MIN ? LLONG_MIN : tw_add(a, -b)",
    "tw_mul": """\
a == LLONG_MIN || b == LLONG_MIN || (b != 0 && llabs(a) > LLONG_MAX / llabs(b))
        ? LLONG_MIN
        : a * b""",
    "tw_floordiv": """\
a == LLONG_MIN || b == LLONG_MIN || b == 0
        ? LLONG_MIN
        : a / b - (a % b != 0 && (a < 0) != (b < 0))""",
    "tw_mod": "tw_sub(a, tw_mul(tw_floordiv(a, b), b))",
    "tw_cdiv": "tw_floordiv(tw_sub(tw_add(a, b), 1), b)",
    "tw_min": "a < b ? a : b",
    "tw_max": "a == LLONG_MIN || b == LLONG_MIN ? LLONG_MIN : a > b ? a : b",
}
"""The operations of a grid in C. LLONG_MIN is no extent: it marks an overflow or a division by 0."""

_NEXT_POWER_OF_2 = """
static long long tw_next_power_of_2(long long a)
{
    long long power = 1;
    if (a <= 0)
        return a == LLONG_MIN ? LLONG_MIN : 0;
    while (power < a) {
        if (power > LLONG_MAX / 2)
            return LLONG_MIN;
        power *= 2;
    }
    return power;
}
"""


def grid_functions(expressions: Sequence[str]) -> str:
    """Returns the functions that the expressions call."""
    called: set[str] = set()
    waiting = list(expressions)
    while waiting:
        names = set(re.findall(r"\btw_\w+(?=\()", waiting.pop())) - called
        called |= names
        waiting += [_GRID_FUNCTIONS[name] for name in names if name in _GRID_FUNCTIONS]
    texts = [
        f"\nstatic long long {name}(long long a, long long b)\n{{\n    return {body};\n}}\n"
        for name, body in _GRID_FUNCTIONS.items()
        if name in called
    ]
    texts += [_NEXT_POWER_OF_2] if "tw_next_power_of_2" in called else []
    return "".join(texts)


MEMORY = """
/* The size of the memory at an address is unknown: accesses after the address are not checked. */
static uint64_t tw_bytes(CUdeviceptr address)
{
    return address == 0 || address > INT64_MAX ? 0 : INT64_MAX - address;
}
"""

LINKED_DECLARATIONS = Template("""\
/* Loads all variants, which launches do, too. Returns 0, or the code of the first error. */
tw_result load_$name(void);

/* Unloads all variants. No thread may be launching one. */
void unload_$name(void);

/* Returns the number of algorithms. */
int ${name}_get_num_algos(void);

/* Launches the most specific variant of an algorithm that fits the arguments. */
tw_result $name($algorithm_parameters);

/* Launches the most specific variant of algorithm 0 that fits the arguments. */
tw_result ${name}_default($parameters);

/* As $name, on another grid. */
tw_result ${name}_with_grid($grid_parameters);

/* Sets the device of this thread's launches: "cuda:1", "cpu" or "sim:sm_90", a simulated GPU. With
   NULL, it is that of the variable TILEWRIGHT_DEVICE, else the default of the variant. */
void ${name}_set_device(const char *device);

/* Returns the message of the last call of this thread that failed, or "". Valid until the next. */
const char *${name}_error(void);

$algorithms""")

LINKED_SOURCE = Template("""\
/* $title */

#include "$header"

static _Thread_local const char *tw_message = "";

static tw_result tw_fail(const char *message)
{
    tw_message = message;
    return $invalid;
}

/* Returns a result, and keeps the message of a failure. */
static tw_result tw_keep(tw_result code, const char *(*error)(void))
{
    if (code != 0)
        tw_message = error();
    return code;
}

$variants
$algorithms
tw_result load_$name(void)
{
    tw_result code;
$loads
    return 0;
}

void unload_$name(void)
{
$unloads
}

int ${name}_get_num_algos(void)
{
    return $count;
}

tw_result $name($algorithm_parameters)
{
    switch ($algorithm) {
$cases
    default:
        return tw_fail("algo_id of $name is not from 0 to $last");
    }
}

tw_result ${name}_default($parameters)
{
    return $name($default_call);
}

tw_result ${name}_with_grid($grid_parameters)
{
    switch ($algorithm) {
$grid_cases
    default:
        return tw_fail("algo_id of $name is not from 0 to $last");
    }
}

void ${name}_set_device(const char *device)
{
$devices
}

const char *${name}_error(void)
{
    return tw_message;
}
""")

VARIANT_PROTOTYPES = Template("""\
tw_result load_$name(void);
void unload_$name(void);
tw_result $name($parameters);
tw_result ${name}_with_grid($grid_parameters);
void ${name}_set_device(const char *device);
const char *${name}_error(void);
""")

ALGORITHM = Template("""\
tw_result $name($parameters)
{
$dispatch
}
""")

LAUNCH = Template("return tw_keep($function($call), ${variant}_error);")
