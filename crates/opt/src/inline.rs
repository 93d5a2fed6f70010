//! Inlines calls, callees first, and drops the functions that are no longer called.
//! The kernel, `noinline` functions and recursive functions remain. A copied instruction keeps its
//! location and gains the call site. Copied values keep their names. But a computed and returned
//! value gets the name of the call's result, if it has one.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_base::entity::{EntitySet, PrimaryMap, SecondaryMap, packed_option::PackedOption};
use tilewright_ir::{Block, BlockData, FuncId, Function, Inst, Location, LocationData, Module, Op, Value};

use crate::aliases::Aliases;

/// The maximum number of instructions after inlining. Beyond it, no call is inlined, and back ends
/// may reject the calls. Only handwritten modules exceed it.
const MAX_INSTS: usize = 1 << 21;

/// The maximum nesting of regions after inlining. Beyond it, no call is inlined.
const MAX_NESTING: usize = 512;

/// Inlines all calls, except those of recursive and `noinline` functions, and removes functions
/// without calls. With `keeps_scaled_dots`, calls of dots with scales stay, too. Does nothing beyond
/// the limits. Returns whether anything changed.
pub fn run(module: &mut Module, keeps_scaled_dots: bool) -> bool {
    let order = callees_first(module);
    if !is_small_enough(module, &order) {
        return false;
    }
    let mut is_done: EntitySet<FuncId> = EntitySet::new();
    let mut changed = false;
    for id in order {
        let mut function = std::mem::replace(&mut module.functions[id], Function::new(""));
        let can_inline = |callee: FuncId| {
            let function = &module.functions[callee];
            let stays = function.noinline || keeps_scaled_dots && function.scaled_dot.is_some();
            is_done.contains(callee) && !stays
        };
        let mut caller =
            Caller { function: &mut function, module, can_inline: &can_inline, aliases: Aliases::default() };
        changed |= caller.block(caller.function.entry);
        module.functions[id] = function;
        is_done.insert(id);
    }
    let before = module.functions.len();
    remove_uncalled(module);
    changed || module.functions.len() != before
}

/// Returns the functions that the kernel reaches, callees first (except in recursion).
fn callees_first(module: &Module) -> Vec<FuncId> {
    let mut order = Vec::new();
    let mut seen: EntitySet<FuncId> = EntitySet::new();
    let mut stack = vec![(module.entry, callees(&module.functions[module.entry]))];
    seen.insert(module.entry);
    while let Some((id, rest)) = stack.last_mut() {
        match rest.pop() {
            Some(callee) if seen.insert(callee) => stack.push((callee, callees(&module.functions[callee]))),
            Some(_) => {}
            None => {
                order.push(*id);
                stack.pop();
            }
        }
    }
    order
}

/// Returns whether all functions stay within the limits. It is checked before copying, because each
/// level of calls may double the instructions.
fn is_small_enough(module: &Module, callees_first: &[FuncId]) -> bool {
    let mut extents: SecondaryMap<FuncId, Option<Extent>> = SecondaryMap::new();
    let mut total = 0_usize;
    for &id in callees_first {
        let mut extent = Extent { insts: 0, nesting: 0 };
        let mut blocks = vec![(module.functions[id].entry, 0)];
        while let Some((block, depth)) = blocks.pop() {
            extent.nesting = extent.nesting.max(depth);
            for &inst in &module.functions[id].blocks[block].insts {
                let data = &module.functions[id].insts[inst];
                extent.insts = extent.insts.saturating_add(1);
                blocks.extend(data.regions.iter().map(|&region| (region, depth + 1)));
                // Calls of `noinline` and of recursive functions, which have no extent, stay.
                if let Op::Call { callee, .. } = data.op
                    && !module.functions[callee].noinline
                    && let Some(inner) = extents[callee]
                {
                    extent.insts = extent.insts.saturating_add(inner.insts);
                    extent.nesting = extent.nesting.max(depth + inner.nesting);
                }
            }
        }
        total = total.saturating_add(extent.insts);
        if total > MAX_INSTS || extent.nesting > MAX_NESTING {
            return false;
        }
        extents[id] = Some(extent);
    }
    true
}

/// The size of a function with the bodies of its callees.
#[derive(Clone, Copy)]
struct Extent {
    insts: usize,
    nesting: usize,
}

fn callees(function: &Function) -> Vec<FuncId> {
    let mut callees = Vec::new();
    function.walk(function.entry, &mut |inst| {
        if let Op::Call { callee, .. } = function.insts[inst].op {
            callees.push(callee);
        }
    });
    callees
}

struct Caller<'a> {
    function: &'a mut Function,
    module: &'a Module,
    can_inline: &'a dyn Fn(FuncId) -> bool,
    aliases: Aliases,
}

impl Caller<'_> {
    /// Inlines the calls that `can_inline` accepts in a block and its regions. Returns whether
    /// there were any.
    fn block(&mut self, block: Block) -> bool {
        let insts = std::mem::take(&mut self.function.blocks[block].insts);
        let mut out = Vec::with_capacity(insts.len());
        let mut changed = false;
        for inst in insts {
            self.aliases.resolve_operands(self.function, inst);
            let regions = self.function.insts[inst].regions.clone();
            for region in regions {
                changed |= self.block(region);
            }
            match self.function.insts[inst].op {
                Op::Call { callee, .. } if (self.can_inline)(callee) => {
                    self.call(inst, &self.module.functions[callee], &mut out);
                    changed = true;
                }
                // tidy: wildcard because every op except an inlined call stays unchanged
                _ => out.push(inst),
            }
        }
        self.function.blocks[block].insts = out;
        changed
    }

    fn call(&mut self, call: Inst, callee: &Function, out: &mut Vec<Inst>) {
        let data = &self.function.insts[call];
        let (call_location, arguments, results) =
            (data.location, data.operands.clone(), data.results.clone());
        let mut copier = Copier {
            callee,
            into: self.function,
            call_location,
            values: FxHashMap::default(),
            locations: FxHashMap::default(),
        };
        copier.values.extend(callee.blocks[callee.entry].parameters.iter().copied().zip(arguments));
        let Some((&last, body)) = callee.blocks[callee.entry].insts.split_last() else { return };
        for &inst in body {
            out.push(copier.inst(inst));
        }
        for (&result, &returned) in results.iter().zip(&callee.insts[last].operands) {
            let value = copier.value(returned);
            let name = copier.into.values[result].name.clone();
            if name.is_some() && callee.defining_inst(returned).is_some() {
                copier.into.values[value].name = name;
            }
            self.aliases.replace(copier.into, result, value);
        }
    }
}

/// Copies the body of a callee into a caller.
struct Copier<'a> {
    callee: &'a Function,
    into: &'a mut Function,
    call_location: PackedOption<Location>,
    values: FxHashMap<Value, Value>,
    locations: FxHashMap<Location, Location>,
}

impl Copier<'_> {
    fn value(&self, value: Value) -> Value {
        self.values.get(&value).copied().expect("the verifier checks that definitions come before uses")
    }

    fn inst(&mut self, inst: Inst) -> Inst {
        let callee = self.callee;
        let data = &callee.insts[inst];
        let operands: SmallVec<[Value; 4]> = data.operands.iter().map(|&value| self.value(value)).collect();
        let regions = data.regions.iter().map(|&region| self.block(region)).collect();
        let location = self.location(data.location);
        let types = data.results.iter().map(|&value| callee.ty(value).clone());
        let copy = self.into.create_inst(data.op.clone(), operands, regions, types, location);
        for (index, &result) in data.results.iter().enumerate() {
            let new = self.into.insts[copy].results[index];
            self.into.values[new].name.clone_from(&callee.values[result].name);
            self.values.insert(result, new);
        }
        copy
    }

    fn block(&mut self, block: Block) -> Block {
        let callee = self.callee;
        let copy = self.into.blocks.push(BlockData::default());
        for &parameter in &callee.blocks[block].parameters {
            let data = &callee.values[parameter];
            let new = self.into.add_parameter(copy, data.ty.clone(), data.name.clone());
            self.values.insert(parameter, new);
        }
        let insts = callee.blocks[block].insts.iter().map(|&inst| self.inst(inst)).collect();
        self.into.blocks[copy].insts = insts;
        copy
    }

    /// Returns the location of a callee's instruction with the call site, or only the call site.
    fn location(&mut self, location: PackedOption<Location>) -> PackedOption<Location> {
        let Some(location) = location.expand() else { return self.call_location };
        if let Some(&known) = self.locations.get(&location) {
            return known.into();
        }
        let LocationData { span, caller } = self.callee.locations[location];
        let caller = self.location(caller);
        let new = self.into.locations.push(LocationData { span, caller });
        self.locations.insert(location, new);
        new.into()
    }
}

/// Removes the functions that the kernel does not reach, and renumbers the others.
pub(crate) fn remove_uncalled(module: &mut Module) {
    let mut kept: Vec<FuncId> = vec![module.entry];
    let mut new_ids: FxHashMap<FuncId, FuncId> = FxHashMap::default();
    new_ids.insert(module.entry, FuncId::from_u32(0));
    let mut next = 0;
    while let Some(&id) = kept.get(next) {
        for callee in callees(&module.functions[id]) {
            new_ids.entry(callee).or_insert_with(|| {
                kept.push(callee);
                FuncId::from_u32(kept.len() as u32 - 1)
            });
        }
        next += 1;
    }
    let mut functions = PrimaryMap::with_capacity(kept.len());
    for id in kept {
        let mut function = std::mem::replace(&mut module.functions[id], Function::new(""));
        for data in function.insts.values_mut() {
            if let Op::Call { callee, .. } = &mut data.op
                && let Some(&new) = new_ids.get(callee)
            {
                *callee = new;
            }
        }
        functions.push(function);
    }
    module.functions = functions;
    module.entry = FuncId::from_u32(0);
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    /// Returns functions that each call the next one twice. The kernel calls it once, and the last
    /// function calls none.
    fn doubling(functions: usize, attribute: &str) -> tilewright_ir::Module {
        let mut text = "kernel func0 @kernel(%x: int32) {\n  %a = call %x {callee = func1, results = (int32)} : int32\n  return_values\n}\n".to_owned();
        for number in 1..functions {
            let next = number + 1;
            let call = |result: &str, argument: &str| {
                format!("  %{result} = call %{argument} {{callee = func{next}, results = (int32)}} : int32\n")
            };
            let (first, second) = (call("a", "x"), call("b", "a"));
            writeln!(
                text,
                "func{number} @f{number}(%x: int32){attribute} {{\n{first}{second}  return_values %b\n}}"
            )
            .expect("a string takes all text");
        }
        writeln!(text, "func{functions} @last(%x: int32) {{\n  return_values %x\n}}")
            .expect("a string takes all text");
        tilewright_ir::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn calls_that_stay_do_not_multiply() {
        assert!(!super::run(&mut doubling(30, ""), false), "2^30 calls are too many");
        let mut module = doubling(30, " noinline");
        assert!(super::run(&mut module, false));
        assert_eq!(module.functions.len(), 30, "only the last function is inlined");
    }
}
