//! Defines the native module of the Python package, `tilewright._native`.
//!
//! A layer uses only the layers above it in this table:
//!
//! | layer | contents |
//! |---|---|
//! | `values` | conversion of Python values to arguments and compile-time values, and back |
//! | `kernel` | `@jit` functions, their compiled variants, compilation and lookup |
//! | `interpret` | kernels whose body Python runs |
//! | `launch` | launches of kernels, compiled variants and wrappers |
//! | `methods` | the Python methods of the classes that launch |
//!
//! Other modules:
//!
//! | module | contents |
//! |---|---|
//! | `linear_layout` | the algebra of layouts, for tools |
//! | `gluon_layouts` | the layouts of Gluon |
//! | `trace`, `interpreted_trace` | recordings of launches |
//! | `errors` | diagnostics as exceptions |
//! | `unsupported` | names of Triton that tilewright does not have |
//! | `output` | the texts that kernels print |
//! | `signals` | Ctrl-C while a kernel runs |
//! | `names` | the functions and types of the language |
//!
//! The Python code (`python/tilewright`) is the code that a usual launch does not run: decorators,
//! names, the commands.

mod errors;
mod gluon_layouts;
mod interpret;
mod interpreted_trace;
mod kernel;
mod launch;
mod linear_layout;
mod methods;
mod names;
mod output;
mod signals;
mod trace;
mod unsupported;
mod values;

use pyo3::prelude::*;

/// The module `tilewright._native`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::errors::{not_available, outside_kernel};
    #[pymodule_export]
    use crate::gluon_layouts::{gluon_layout_bases, gluon_layout_places, gluon_layout_table};
    #[pymodule_export]
    use crate::interpret::{
        Counter, InterpretHook, LanguageCall, Structure, Tensor, interpret_assign, interpret_attribute,
        interpret_boolean, interpret_builtin, interpret_failed, interpret_known, interpret_merged,
        interpret_mistake, interpret_not, interpret_operator, interpret_passed, interpret_program_is,
        interpret_range, interpret_returned, interpret_tensor, interpreted_program,
    };
    #[pymodule_export]
    use crate::kernel::compile::{compile, compile_ir, compile_options, default_option};
    #[pymodule_export]
    use crate::kernel::compiled::CompiledKernel;
    #[pymodule_export]
    use crate::kernel::dependencies::is_unchanged;
    #[pymodule_export]
    use crate::kernel::jit::JitKernel;
    #[pymodule_export]
    use crate::launch::device::{
        allow_padded_reads, claim_capability, command_line, current_device, current_target, device,
        device_capability, device_name, device_properties, environment_variable, has_gpu,
        is_stream_capturing, keep_reports, multiprocessors_of, profile_clock, reload_knobs,
        set_current_device, set_device, set_printf_fifo_size, set_profile_scope, start_profile, stop_profile,
        take_profile, take_reports,
    };
    #[pymodule_export]
    use crate::launch::driver::{
        CudaLauncher, assemble, build_signature_metadata, launch_function, load_binary, max_active_clusters,
        unload_module,
    };
    #[pymodule_export]
    use crate::launch::hooks::{set_capturing, set_hooks};
    #[pymodule_export]
    use crate::launch::lock::{
        grid_in_c, lock_assemble, lock_choice, lock_collect, lock_end_preparation, lock_is_active,
        lock_is_recording, lock_prepare, lock_record, lock_record_choice, lock_resume, lock_suspend,
        target_names,
    };
    #[pymodule_export]
    use crate::launch::sanitize::{
        sanitizer_allocated, sanitizer_checks, sanitizer_freed, sanitizer_parse, sanitizer_print,
        sanitizer_reports, sanitizer_written,
    };
    #[pymodule_export]
    use crate::launch::tensor_map::{TensorMap, fill_tma_descriptor_im2col, fill_tma_descriptor_tiled};
    #[pymodule_export]
    use crate::launch::warm_up::note_async_mode;
    #[pymodule_export]
    use crate::launch::wrapper::Wrapper;
    #[pymodule_export]
    use crate::linear_layout::LinearLayout;
    #[pymodule_export]
    use crate::names::{
        combining_functions, element_types, elementwise_functions, language_names, language_types, tile_ops,
    };
    #[pymodule_export]
    use crate::unsupported::Missing;
    #[pymodule_export]
    use crate::values::convert::describe_argument;
    #[pymodule_export]
    use crate::values::live::{record_memory, take_records};
    #[pymodule_export]
    use crate::values::torch::set_torch_function_mode;

    #[pymodule_export]
    use crate::interpreted_trace::InterpretedTrace;
    #[pymodule_export]
    use crate::trace::{TraceFile, TraceRecorder};

    /// Sends the output of kernels to the `sys.stdout` of the program. Also enables descriptions of
    /// layouts in records of launches.
    #[pymodule_init]
    #[expect(clippy::unnecessary_wraps, reason = "Python takes a result")]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        tilewright_base::output::print_through(crate::output::print);
        tilewright_runtime::lock::describe_objects_by(crate::gluon_layouts::layout_text);
        Ok(())
    }

    /// The version of tilewright.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python gives it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
