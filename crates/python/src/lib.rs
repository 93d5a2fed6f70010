//! The native module of the Python package, `tilewright._native`: conversion and error mapping, nothing else.
//!
//! ```text
//! kernel[grid](...) ── launcher ──> convert (arguments to values) ──> runtime ──> handle
//!                                     torch, array, dlpack: who the memory of an argument belongs to
//!                                     live: the memory behind addresses that a kernel reads
//!                      wrapper: the arguments that autotuning and heuristics add
//! compiling ── host: what the free names of a kernel mean ──> objects (Python objects to values and back)
//!              reads: whether they still mean that at a later launch
//! compile, driver, tensor_map: what Triton offers below `kernel[grid]`: compiling for described types, device code by its number
//! interpret: kernels whose body Python runs
//! linear_layout: the algebra of layouts, for tools
//! trace: launches that are recorded, and what was recorded
//! errors: diagnostics to exceptions; output: what kernels print
//! ```
//! The Python side (`python/tilewright`) holds what is not on the path of a launch: decorators, names, the commands.

mod aggregate;
mod array;
mod compile;
mod convert;
mod device;
mod dlpack;
mod driver;
mod errors;
mod handle;
mod hooks;
mod host;
mod interpret;
mod interpreted_trace;
mod kernel;
mod launch;
mod launcher;
mod linear_layout;
mod live;
mod missing;
mod names;
mod objects;
mod output;
mod reads;
mod sanitize;
mod tensor_map;
mod torch;
mod trace;
mod wrapper;

use pyo3::prelude::*;

/// The module `tilewright._native`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::compile::{compile, compile_ir, compile_options, default_option};
    #[pymodule_export]
    use crate::convert::describe_argument;
    #[pymodule_export]
    use crate::device::{
        allow_padded_reads, claim_capability, command_line, current_device, current_target, device,
        device_capability, device_properties, environment_variable, has_gpu, is_stream_capturing,
        keep_reports, multiprocessors_of, profile_clock, reload_knobs, set_current_device, set_device,
        set_printf_fifo_size, set_profile_scope, start_profile, stop_profile, take_profile, take_reports,
    };
    #[pymodule_export]
    use crate::driver::{
        CudaLauncher, assemble, build_signature_metadata, launch_function, load_binary, max_active_clusters,
        unload_module,
    };
    #[pymodule_export]
    use crate::errors::{not_available, outside_kernel};
    #[pymodule_export]
    use crate::handle::CompiledKernel;
    #[pymodule_export]
    use crate::hooks::{set_capturing, set_hooks};
    #[pymodule_export]
    use crate::interpret::{
        InterpretHook, LanguageCall, Structure, Tensor, interpret_assign, interpret_attribute,
        interpret_boolean, interpret_builtin, interpret_failed, interpret_not, interpret_program_is,
        interpret_range, interpret_tensor, interpreted_program,
    };
    #[pymodule_export]
    use crate::kernel::JitKernel;
    #[pymodule_export]
    use crate::linear_layout::LinearLayout;
    #[pymodule_export]
    use crate::live::{record_memory, take_records};
    #[pymodule_export]
    use crate::missing::Missing;
    #[pymodule_export]
    use crate::names::{element_types, elementwise_functions, language_names, language_types, tile_ops};
    #[pymodule_export]
    use crate::sanitize::{
        sanitizer_allocated, sanitizer_checks, sanitizer_freed, sanitizer_parse, sanitizer_print,
        sanitizer_reports, sanitizer_written,
    };
    #[pymodule_export]
    use crate::tensor_map::{TensorMap, fill_tma_descriptor_im2col, fill_tma_descriptor_tiled};
    #[pymodule_export]
    use crate::torch::set_torch_function_mode;
    #[pymodule_export]
    use crate::wrapper::Wrapper;

    #[pymodule_export]
    use crate::interpreted_trace::InterpretedTrace;
    #[pymodule_export]
    use crate::trace::{TraceFile, TraceRecorder};

    /// What kernels print is the program's output.
    #[pymodule_init]
    #[expect(clippy::unnecessary_wraps, reason = "Python takes a result")]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        tilewright_base::output::print_through(crate::output::print);
        Ok(())
    }

    /// The version of tilewright.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python gives it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
