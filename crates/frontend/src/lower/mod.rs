//! Lowers syntax to IR: one function for each specialization of each `@jit` function.
//!
//! | file | job |
//! |---|---|
//! | `lowerer.rs` | the state that all files use |
//! | `callee.rs` | the functions and their specializations |
//! | `function.rs` | specializes and calls functions |
//! | `statement.rs`, `branch.rs`, `loops.rs`, `with.rs` | lower statements |
//! | `expression.rs`, `call.rs`, `host_call.rs`, `python.rs` | evaluate expressions |
//! | `operation.rs` | lowers one operation of interpret mode |
//! | `aggregate.rs` | creates instances of users' classes |
//! | `names.rs` | resolves names |
//! | `scope.rs` | the values of names at a point of a function |
//! | `report.rs` | completes and collects diagnostics |
//! | `discarded.rs` | reports discarded results that a caller must use |
//! | `portability.rs` | warns of calls that the official Triton refuses |

mod advice;
mod aggregate;
mod arguments;
mod branch;
mod budget;
mod call;
mod callee;
mod discarded;
mod dunder;
mod exit;
pub(crate) mod expression;
mod external;
pub(crate) mod function;
mod host_call;
pub(crate) mod known;
pub(crate) mod literals;
mod loops;
mod lowerer;
pub(crate) mod names;
mod objects;
pub(crate) mod operation;
mod portability;
pub(crate) mod python;
mod read_only;
pub(crate) mod relocate;
mod report;
pub(crate) mod scope;
mod statement;
pub(crate) mod template;
mod with;

use std::sync::Arc;

use tilewright_base::Code;
use tilewright_ir::Module;

use crate::host::Host;
use crate::{Failure, Lowered, Request};
use lowerer::Session;

/// Lowers a kernel and all functions that it calls to IR. The kernel is the entry of the module.
///
/// If the user interrupts the lowering, the failure has one diagnostic with the code `Interrupted`.
pub fn lower(request: &Request, host: &mut dyn Host) -> Result<Module, Box<Failure>> {
    lower_kernel(request, host).map(|lowered| lowered.module)
}

/// Lowers a kernel like [`lower`]. Also returns whether compilations for other numbers of warps can
/// share the result.
pub fn lower_kernel(request: &Request, host: &mut dyn Host) -> Result<Lowered, Box<Failure>> {
    let mut session = Session::new(host, &request.options);
    let entry = session.kernel(request);
    let Session { mut diagnostics, sources, functions, budget, is_shareable, .. } = session;
    // After an interrupt, the user expects no other diagnostics.
    if budget.stopped() == Some(Code::Interrupted) {
        diagnostics.retain(|diagnostic| diagnostic.code == Code::Interrupted);
    }
    match entry {
        Ok(entry) if diagnostics.is_empty() => {
            Ok(Lowered { module: Module::new(functions, entry, Arc::new(sources)), is_shareable })
        }
        _ => Err(Box::new(Failure { diagnostics, sources })),
    }
}
