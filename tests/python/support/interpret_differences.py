"""The differences of interpret mode from a compiled kernel, test by test, each with its reason.

The walk expects these to fail.
"""

from __future__ import annotations

NO_ARTIFACT = "the test looks at the compiled kernel, and there is none"
PYTHON_SAYS = "the mistake is one in Python, and its exception is Python's own"
NOT_COMPILED = (
    "the finding is about code that no program gets to, or about all paths: Python sees the one that it takes"
)
ANY_PYTHON = "Python runs the body, so that a kernel may do what the language does not have"
PYTHON_PRINTS = "`print` is Python's, which shows a tensor as an array"
READ_ONLY = "a pointer that a branch chooses is what the branch that was taken says"
ADVICE = "the compiler warns about a source; an operation by itself has none"
UNUSED = "Python runs a statement without a look at what it discards"
NO_LABELS = "a finding points at the operation, not at the signature of the kernel as well"
NEVER_ENDS = "programs run one after the other, so that one that waits for a later one never ends"

_MISTAKES_OF_AGGREGATES = (
    "unset",
    "undeclared",
    "assigned",
    "unknown",
    "without a constructor",
    "a field without a value",
    "a changed instance",
    "replace",
    "unpacked",
)

_CLUSTERS = (
    "a_part_that_is_loaded_and_stored_by_its_block",
    "a_product_is_divided_whatever_the_grid",
    "attention_is_divided_by_its_queries",
    "descriptors_in_persistent_programs",
    "descriptors_of_the_launch",
    "elements_of_other_types",
    "epilogues_divide_the_axis_that_they_leave",
    "odd_sizes",
    "rows_or_columns_are_divided",
    "what_all_blocks_need_is_copied_once",
    "what_has_no_axis_is_done_by_the_first_block",
    "what_needs_other_blocks_is_not_divided",
    "what_threads_read_each_block_copies",
)

DIFFERENCES: dict[str, str] = {
    "advice::test_texts": PYTHON_SAYS,
    "advice::test_warnings_are_given_once[mask = i < n & i > 3]": ADVICE,
    "advice::test_warnings_are_given_once[mask = (i < n) and (i > 3)]": ADVICE,
    "advice::test_a_warning_that_is_an_error_stops_the_launch": ADVICE,
    "advice::test_a_list_for_a_tensor": "the use of an argument is not known before the body runs",
    "aggregates::test_a_dict_that_may_change_is_no_constant": ANY_PYTHON,
    **{f"aggregates::test_mistakes[{name}]": PYTHON_SAYS for name in _MISTAKES_OF_AGGREGATES},
    "atomics::test_a_barrier_between_all_programs": NEVER_ENDS,
    "atomics::test_a_barrier_between_a_thousand_programs": NEVER_ENDS,
    "atomics::test_each_program_waits_for_one_that_begins_later": NEVER_ENDS,
    "atomics::test_programs_wait_by_loads": NEVER_ENDS,
    "block_pointers::test_mistakes[sum with a number]": PYTHON_SAYS,
    **{f"clusters::test_{name}": NO_ARTIFACT for name in _CLUSTERS},
    "compile_time::test_a_value_of_another_call_is_refused": ANY_PYTHON,
    "compile_time::test_what_needs_the_value_says_so": ANY_PYTHON,
    "control::test_a_chain_that_nests_too_deep_is_one_finding": ANY_PYTHON,
    "descriptors::test_mistakes[sum with a number]": PYTHON_SAYS,
    "dot_warpgroups::test_the_error_of_fp8_follows_the_number_of_inexact_terms[cpu]": NO_ARTIFACT,
    "dot_weights::test_warps_that_copy": NO_ARTIFACT,
    "errors::test_mistakes[undefined name]": PYTHON_SAYS,
    "errors::test_mistakes[misspelt name]": PYTHON_SAYS,
    "errors::test_mistakes[name that one branch defines]": NOT_COMPILED,
    "errors::test_mistakes[unknown function of the language]": PYTHON_SAYS,
    "errors::test_mistakes[index of a scalar]": "a scalar can be looked at as an array of one number",
    "errors::test_mistakes[shift of a compile-time float]": PYTHON_SAYS,
    "errors::test_mistakes[compile-time division by zero]": PYTHON_SAYS,
    "errors::test_mistakes[python that kernels do not have]": ANY_PYTHON,
    "errors::test_mistakes[break]": ANY_PYTHON,
    "errors::test_mistakes[global variable]": ANY_PYTHON,
    "errors::test_an_extent_that_is_no_constexpr": NO_LABELS,
    "errors::test_an_argument_that_is_none": NO_LABELS,
    "errors::test_a_plain_python_function": ANY_PYTHON,
    "errors::test_a_name_that_changes_its_type_in_a_loop": NOT_COMPILED,
    "errors::test_a_name_that_changes_its_shape_in_a_while_loop": NOT_COMPILED,
    "errors::test_a_name_of_different_types_after_the_branches": NOT_COMPILED,
    "errors::test_return_types_that_differ": NOT_COMPILED,
    "errors::test_arguments_that_do_not_fit_a_helper": PYTHON_SAYS,
    "errors::test_a_keyword_for_a_parameter_before_the_slash": PYTHON_SAYS,
    "errors::test_recursion": PYTHON_SAYS,
    "errors::test_a_function_of_another_library_that_the_language_has_too": ANY_PYTHON,
    "errors::test_several_mistakes_are_all_told": PYTHON_SAYS,
    "errors::test_columns_count_characters_and_lines_those_of_the_file": PYTHON_SAYS,
    "errors::test_a_mistake_costs_nothing_but_the_launch": PYTHON_SAYS,
    "errors::test_whole_texts[undefined]": PYTHON_SAYS,
    "errors::test_whole_texts[helper]": NO_LABELS,
    'external::test_what_is_wrong_is_said["", "", [x], {**K}, True-TW0003-\'**\' in a dict]': PYTHON_SAYS,
    "odd_arguments::test_odd_arguments[Loops and compile-time values]": PYTHON_SAYS,
    "odd_arguments::test_odd_arguments[Types]": PYTHON_SAYS,
    "odd_arguments::test_odd_arguments[The target and the machine]": PYTHON_SAYS,
    "cluster_multicast::test_every_order_of_programs": NO_ARTIFACT,
    "pointers::test_a_store_to_a_constant_pointer_is_a_mistake[after a branch]": READ_ONLY,
    "portability::test_a_discarded_result_is_an_error": UNUSED,
    "portability::test_advance_changes_no_pointer": UNUSED,
    r"portability::test_refused_tiles_are_warned_of[n = 16\nx = tl.arange(0, n)]": ADVICE,
    r"portability::test_refused_tiles_are_warned_of[n = 16\nx = tl.zeros((n, 16), tl.float32)]": ADVICE,
    r"portability::test_refused_tiles_are_warned_of[n = 4\nx = tl.arange(0, 16).reshape(n, 4)]": ADVICE,
    "print::test_a_line_for_each_element[cpu]": PYTHON_PRINTS,
    "print::test_a_pointer_and_a_tuple[cpu]": PYTHON_PRINTS,
    "print::test_a_value_without_a_text": PYTHON_PRINTS,
    "print::test_in_control_flow[cpu]": PYTHON_PRINTS,
    "surface::test_a_wrong_call_of_an_operator_is_explained": ANY_PYTHON,
}

SLOW: dict[str, str] = {
    "grids::test_a_hundred_thousand_tiny_programs": "Python runs each program by itself",
    "grids::test_many_programs_over_three_axes": "Python runs each program by itself",
    "print::test_output_comes_in_order": "it starts a Python of its own",
    "atomics::test_ctrl_c_ends_programs_that_wait_in_vain": "it starts a Python of its own",
    "print::test_device_print": "it starts a Python of its own",
    "print::test_static_print": "it starts a Python of its own",
}
"""Tests that the walk leaves out."""

NOT_OF_KERNELS = ("machine", "namespace")
"""Files whose tests are about names and the clock, and launch nothing that computes."""
