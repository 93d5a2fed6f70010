//! Calls builtins: maps each row of the table to the rule that implements it.

use tilewright_ir::{AtomicKind, ElementwiseFn as F, GridDependency, HintKind, MachineQuantity};

use super::arguments::Arguments;
use super::names::BuiltinSpec;
use super::table::{Builtin, builtins};
use super::{BinaryOperator, BooleanOperator, Caller, Op, Semantic};
use super::{
    atomics, barriers, cluster_launches, clusters, descriptor, dots, external, gluon, inline_asm, machine,
    map, math, memory, movement, program, reduce, scan, shape, shared_access, tensor_copies, tensor_memory,
    views, workers,
};

macro_rules! dispatch {
    ($($(#[doc = $doc:literal])* $id:ident $signature:literal [$($place:ident)*]
       => $function:path $(, $extra:expr)*;)*) => {
        fn dispatch<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
            match a.spec.implementation {
                $(Builtin::$id => $function(c, a $(, $extra)*),)*
                Builtin::TypeMethod => program::type_method(c, a),
            }
        }
    };
}

builtins!(dispatch);

/// Calls a builtin with one argument for each of its parameters, in order. The argument of a
/// variadic parameter is a tuple. Errors refer to an argument by the index of its parameter.
pub fn call_builtin<C: Caller + ?Sized>(
    c: &mut C,
    spec: &'static BuiltinSpec,
    arguments: &[Op<C>],
) -> Semantic<Op<C>> {
    dispatch(c, &Arguments { spec, values: arguments, parameters: &[] })
}
