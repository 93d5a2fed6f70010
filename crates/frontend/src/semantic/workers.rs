//! Defines the rule of `warp_specialize` (Gluon), which runs functions in partitions of the warps.

use smallvec::{SmallVec, smallvec};
use tilewright_base::Code;
use tilewright_ir::{Builder, DeviceFn, IntList, Op as IrOp};

use super::arguments::{Arguments, constant_of, flatten};
use super::convert::describe;
use super::device_function::device;
use super::{Caller, Op, Semantic, SemanticError, ValueOf};
use crate::value::{Constant, Operand};

/// The maximum number of warps of a block.
const MAX_WARPS: i128 = 32;
/// The maximum number of registers of a thread, for `setmaxnreg`.
const MAX_REGISTERS: i128 = 256;

/// A function and its arguments.
struct Partition<V> {
    function: Operand<V>,
    arguments: Vec<Operand<V>>,
}

/// An argument of a call, with the index of its parameter.
type Passed<'a, V> = (&'a Operand<V>, usize);

/// The arguments of a call of `warp_specialize`, with the older or the newer parameters.
struct Call<'a, V> {
    partitions: Vec<Partition<V>>,
    workers: usize,
    warps: Passed<'a, V>,
    registers: Passed<'a, V>,
}

fn misuse(message: impl Into<String>) -> SemanticError {
    SemanticError::new(Code::PartitionMisuse, message)
}

fn is_none<V>(operand: &Operand<V>) -> bool {
    matches!(operand, Operand::Constant(Constant::None))
}

fn is_tuple<V>(operand: &Operand<V>) -> bool {
    matches!(operand, Operand::Tuple(_) | Operand::Constant(Constant::Tuple(_)))
}

/// Returns the arguments of a partition, which must be a tuple.
fn arguments_of<C: Caller + ?Sized>(c: &mut C, operand: &Op<C>, index: usize) -> Semantic<Vec<Op<C>>> {
    if is_tuple(operand) {
        return Ok(flatten(operand));
    }
    let found = describe(c, operand);
    Err(misuse("the arguments of a partition must be a tuple")
        .argument(index, format!("this has {found}"))
        .hint("write `(function, (x,))` for a function of one argument"))
}

/// Reads the older parameters: the arguments and the function of the default partition, and the
/// arguments and the functions of the workers.
fn older<'a, C: Caller + ?Sized>(
    c: &mut C,
    [default_args, default_partition, worker_args, workers]: [Passed<'a, ValueOf<C>>; 4],
    [warps, registers]: [Passed<'a, ValueOf<C>>; 2],
) -> Semantic<Call<'a, ValueOf<C>>> {
    let arguments = arguments_of(c, default_args.0, default_args.1)?;
    let mut partitions = vec![Partition { function: default_partition.0.clone(), arguments }];
    let arguments = arguments_of(c, worker_args.0, worker_args.1)?;
    for function in flatten(workers.0) {
        partitions.push(Partition { function, arguments: arguments.clone() });
    }
    Ok(Call { partitions, workers: workers.1, warps, registers })
}

fn read<'a, C: Caller + ?Sized>(c: &mut C, a: &'a Arguments<'_, C>) -> Semantic<Call<'a, ValueOf<C>>> {
    const OLDER: usize = 3;
    let at = |index: usize| a.at(index).map(|operand| (operand, index));
    let (warps, registers) = (at(1)?, at(2)?);
    if let Operand::Tuple(rest) = a.at(OLDER)?
        && let [workers, warps, registers @ ..] = &rest[..]
    {
        let registers = registers.first().map_or(at(4)?, |registers| (registers, OLDER));
        return older(c, [at(0)?, at(1)?, at(2)?, (workers, OLDER)], [(warps, OLDER), registers]);
    }
    if !a.is_none(5) {
        return older(c, [at(4)?, at(5)?, at(6)?, at(7)?], [warps, registers]);
    }
    let mut partitions = Vec::new();
    for pair in flatten(a.at(0)?) {
        let (true, [function, arguments]) = (is_tuple(&pair), &flatten(&pair)[..]) else {
            return Err(misuse("each partition must be a pair of a function and its arguments")
                .argument(0, "this has another item")
                .hint("write `gl.warp_specialize([(default, (x,)), (worker, (x,))], [4])`"));
        };
        let arguments = arguments_of(c, arguments, 0)?;
        partitions.push(Partition { function: function.clone(), arguments });
    }
    Ok(Call { partitions, workers: 0, warps, registers })
}

/// Returns a number for each worker, within `1..=max`.
fn numbers<C: Caller + ?Sized>(
    c: &mut C,
    (operand, index): Passed<'_, ValueOf<C>>,
    (workers, what, max): (usize, &str, i128),
) -> Semantic<IntList> {
    let mut found = IntList::new();
    for item in flatten(operand) {
        let number = match constant_of(c, &item) {
            Some(Constant::Int(number)) if (1..=max).contains(&number) => number,
            _ => {
                let item = describe(c, &item);
                return Err(misuse(format!("a number of {what} cannot be {item}"))
                    .argument(index, format!("expected compile-time integers from 1 to {max}")));
            }
        };
        found.push(number as i64);
    }
    if found.len() == workers {
        return Ok(found);
    }
    Err(misuse(format!("{workers} workers have {} numbers of {what}", found.len()))
        .argument(index, format!("this has {} items", found.len()))
        .hint("give one number for each function after the first one"))
}

fn tile_among<C: Caller + ?Sized>(c: &mut C, arguments: &[Op<C>]) -> Option<String> {
    arguments.iter().find_map(|argument| match argument {
        Operand::Tensor(value) => {
            let ty = c.builder().type_of(value);
            (!ty.is_scalar()).then(|| ty.to_string())
        }
        Operand::Tuple(items) => tile_among(c, items),
        // tidy: wildcard because the parts of other operands are scalars
        _ => None,
    })
}

/// `warp_specialize(functions_and_args, worker_num_warps, worker_num_regs)`, and the older
/// `warp_specialize(default_args, default_partition, worker_args, worker_partitions,
/// worker_num_warps, worker_num_regs)`.
pub(super) fn warp_specialize<C: Caller + ?Sized>(c: &mut C, a: &Arguments<'_, C>) -> Semantic<Op<C>> {
    if c.is_in_worker() {
        return Err(misuse("a worker of `warp_specialize` calls `warp_specialize`")
            .hint("give the kernel's `warp_specialize` one worker more"));
    }
    let Call { mut partitions, workers: at_workers, warps, registers } = read(c, a)?;
    if partitions.is_empty() {
        return Err(misuse("`warp_specialize` has no function for the default partition")
            .argument(at_workers, "this is empty"));
    }
    let workers = partitions.split_off(1);
    let at_warps = warps.1;
    let warps = numbers(c, warps, (workers.len(), "warps", MAX_WARPS))?;
    if let Some(count) = warps.iter().find(|count| count.count_ones() != 1) {
        return Err(misuse(format!("a worker cannot have {count} warps"))
            .argument(at_warps, "expected powers of two"));
    }
    let own = match c.num_warps() {
        0 => 4,
        given => i64::from(given),
    };
    let total = own + warps.iter().sum::<i64>();
    if i128::from(total) > MAX_WARPS {
        return Err(misuse(format!(
            "the partitions have {total} warps, but a program has at most {MAX_WARPS}"
        ))
        .argument(at_warps, format!("the default partition has {own} more")));
    }
    let registers = if is_none(registers.0) {
        IntList::new()
    } else {
        numbers(c, registers, (workers.len(), "registers", MAX_REGISTERS))?
    };
    let mut regions: SmallVec<[_; 2]> = smallvec![];
    for (Partition { function, arguments }, count) in workers.iter().zip(&warps) {
        if let Some(tile) = tile_among(c, arguments) {
            return Err(misuse(format!("a worker takes the tile {tile}, whose elements are in other warps"))
                .argument(at_workers, "the arguments of a worker are here")
                .hint("pass it through shared memory: `gl.allocate_shared_memory(…, value=x)`"));
        }
        let (region, result) = c.worker(function, arguments.clone(), *count as u32)?;
        if !is_none(&result) {
            let found = describe(c, &result);
            return Err(misuse(format!("a worker returns {found}"))
                .argument(at_workers, "only the default partition returns a value")
                .hint("store the result in memory"));
        }
        regions.push(region);
    }
    c.builder().emit(IrOp::StartWorkers { warps, registers }, smallvec![], regions)?;
    let [Partition { function, arguments }] = &partitions[..] else {
        return Err(misuse("`warp_specialize` has no function for the default partition"));
    };
    let result = c.call(function, arguments.clone(), Vec::new())?;
    device(c, DeviceFn::JoinWorkers {}, smallvec![])?;
    Ok(result)
}
