"""``triton.tools.link``: names that programs import, and that something else replaces."""

from tilewright._replaced_names import refuse_command, replaced_names

_INSTEAD = "tilewright makes no C headers; triton.compile(...).asm has the code of a kernel"

__getattr__ = replaced_names(
    "tilewright.tools.link",
    "HeaderParser KernelLinkerMeta LinkerError gen_signature gen_signature_with_full_args main make_algo_decls "
    "make_default_algo_kernel make_func_pointers make_get_num_algos_decl make_get_num_algos_def make_global_decl "
    "make_kernel_hints_dispatcher make_kernel_load_def make_kernel_meta_const_dispatcher",
    instead=_INSTEAD,
)

if __name__ == "__main__":
    refuse_command("tilewright.tools.link", _INSTEAD)
