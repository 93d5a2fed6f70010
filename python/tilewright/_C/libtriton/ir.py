"""``triton._C.libtriton.ir``: the memory accesses of a kernel, in the shape in which torch walks the official IR.

``torch.compile`` needs the arguments of a user's kernel that it reads and writes. It takes the kernel's
module, walks its operations, and follows the pointers of ``tt.load`` and ``tt.store`` to the parameters.
Tilewright's compiler knows the answer, so the module that ``ASTSource.make_ir`` returns is a function with an
operation for each access, whose pointers are the parameters themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from tilewright._replaced_names import replaced_names

_numbers = count(1)

__getattr__ = replaced_names(
    "tilewright._C.libtriton.ir",
    "ATOMIC_OP CACHE_MODIFIER ConditionOp DESCRIPTOR_REDUCE_KIND EVICTION_POLICY ForOp INPUT_PRECISION "
    "IfOp InsertPoint MEM_SEMANTIC MEM_SYNC_SCOPE OpState PADDING_OPTION PROPAGATE_NAN ROUNDING_MODE "
    "ScaleDotElemTypeTY WhileOp YieldOp attribute block_argument bool_attr builder deduce_scale_factor "
    "extend_dialects_with function function_type integer_attr location make_attr op_builder op_result "
    "parse_mlir_module pass_manager source_mgr_diag type unit_attr",
    instead="tilewright has no MLIR: kernel.asm and `tilewright compile --emit` have the text of each stage",
)


class context:
    """A stand-in for MLIR's context, which holds nothing here."""


def load_dialects(context: context) -> None:
    """Does nothing: there are no dialects."""


class value:
    """A parameter or a result."""

    def __init__(self) -> None:
        self._id = next(_numbers)

    def id(self) -> int:
        """A number that is unique among all values, regions and blocks."""
        return self._id


class region:
    """The body of a function."""

    def __init__(self) -> None:
        self._id = next(_numbers)

    def id(self) -> int:
        """A number that is unique among all values, regions and blocks."""
        return self._id


class block:
    """The operations of a function, and its parameters."""

    def __init__(self, arguments: list[value], parent: region) -> None:
        self._id = next(_numbers)
        self._arguments = arguments
        self._parent = parent

    def id(self) -> int:
        """A number that is unique among all values, regions and blocks."""
        return self._id

    def get_num_arguments(self) -> int:
        """Returns the number of parameters."""
        return len(self._arguments)

    def get_argument(self, index: int) -> value:
        """A parameter."""
        return self._arguments[index]

    def get_parent(self) -> region:
        """The region that contains the block."""
        return self._parent


class operation:
    """An operation: an access to memory, or the function."""

    def __init__(
        self, name: str, operands: list[value], results: list[value], parent: block | None, symbol: str = ""
    ) -> None:
        self._name = name
        self._operands = operands
        self._results = results
        self._block = parent
        self._regions: list[region] = []
        self._symbol = symbol

    def get_name(self) -> str:
        """The operation's name."""
        return self._name

    def get_num_operands(self) -> int:
        """Returns the number of operands."""
        return len(self._operands)

    def get_operand(self, index: int) -> value:
        """An operand."""
        return self._operands[index]

    def get_num_results(self) -> int:
        """Returns the number of results."""
        return len(self._results)

    def get_result(self, index: int) -> value:
        """A result."""
        return self._results[index]

    def get_num_regions(self) -> int:
        """Returns the number of regions."""
        return len(self._regions)

    def get_region(self, index: int) -> region:
        """A region."""
        return self._regions[index]

    def get_block(self) -> block | None:
        """The block that contains the operation."""
        return self._block

    def get_str_attr(self, name: str) -> str | None:
        """The name of the function."""
        return self._symbol if name == "sym_name" and self._symbol else None

    def get_bool_attr(self, name: str) -> bool | None:
        """Returns nothing: there are no such attributes."""
        return None

    def get_flat_symbol_ref_attr(self, name: str) -> str | None:
        """Returns nothing: there are no calls."""
        return None


class module:
    """A kernel: the names of its run-time parameters, and its accesses.

    An access is the names of the parameters that its pointers may come from, and whether it reads and writes.
    """

    def __init__(
        self, name: str, parameters: list[str], accesses: list[tuple[list[str], bool, bool]]
    ) -> None:
        self._name = name
        self._accesses = accesses
        arguments = {parameter: value() for parameter in parameters}
        body = region()
        entry = block(list(arguments.values()), body)
        stored = value()
        self._operations = [operation("arith.constant", [], [stored], entry)]
        for names, reads, writes in accesses:
            for parameter in names:
                pointer = arguments[parameter]
                if reads:
                    self._operations.append(operation("tt.load", [pointer], [value()], entry))
                if writes:
                    self._operations.append(operation("tt.store", [pointer, stored], [], entry))
        self._operations.append(operation("tt.return", [], [], entry))
        function = operation("tt.func", [], [], None, name)
        function._regions.append(body)
        self._operations.append(function)

    def verify(self) -> bool:
        """Returns True: the module is well formed by construction."""
        return True

    def walk(self, callback: Callable[[operation], None]) -> None:
        """Calls a function with each operation, inner ones first."""
        for found in self._operations:
            callback(found)

    def __str__(self) -> str:
        lines = [
            f"{', '.join(names)}: reads={reads} writes={writes}" for names, reads, writes in self._accesses
        ]
        return "\n".join([f"accesses of {self._name}", *lines])
