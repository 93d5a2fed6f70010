//! Places in shared memory: buffers that are in use at one time lie side by side; buffers that follow each other without a
//! wait between do so too, as far as that does not cost too much memory, since it saves the wait.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;
use tilewright_base::{Code, Diagnostic};
use tilewright_ir::{Block, Function, Inst, Op};

use crate::events::{Event, events, walk};
use crate::exchange::Exchanges;
use crate::plan::{Exchange, Plan};
use crate::support::at;

/// Every buffer is aligned to its size, but to no less than an access and to no more than a line of the banks.
const ALIGNMENT: u64 = 16;
const LINE: u64 = 128;
/// So much may be used to save waits.
const CHEAP_BYTES: u64 = 48 << 10;

/// Gives each exchange its place.
///
/// # Errors
/// If the target has less shared memory.
pub fn allocate(plan: &mut Plan) -> Result<(), Box<Diagnostic>> {
    let buffers = Buffers::new(plan.module.kernel(), &plan.exchanges);
    if buffers.list.is_empty() {
        return Ok(());
    }
    let limit = u64::from(plan.target.max_shared_bytes);
    let least = buffers.place(&buffers.in_use);
    let most = least.bytes.max(CHEAP_BYTES.min(limit));
    let everywhere = &buffers.in_use | &buffers.in_sequence;
    let in_loops: BTreeSet<(Inst, Inst)> = everywhere
        .iter()
        .filter(|(a, b)| buffers.loops[*a].and(buffers.loops[*b]).is_some())
        .copied()
        .collect();
    let candidates = [&everywhere, &(&buffers.in_use | &in_loops)].map(|apart| buffers.place(apart));
    let placed = candidates.into_iter().find(|placed| placed.bytes <= most).unwrap_or(least);
    if placed.bytes > limit {
        return Err(Box::new(too_much(plan, &buffers, placed.bytes)));
    }
    plan.shared_bytes = placed.bytes as u32;
    for (inst, _) in &buffers.list {
        if let (Some(exchange), Some((start, _))) = (&mut plan.exchanges[*inst], placed.ranges[*inst]) {
            *offset_of(exchange) = start as u32;
        }
    }
    Ok(())
}

fn offset_of(exchange: &mut Exchange) -> &mut u32 {
    match exchange {
        Exchange::Relayout { offset, .. }
        | Exchange::Combine { offset, .. }
        | Exchange::Operand { offset, .. } => offset,
    }
}

fn too_much(plan: &Plan, buffers: &Buffers, bytes: u64) -> Diagnostic {
    let kernel = plan.module.kernel();
    let limit = plan.target.max_shared_bytes;
    let (largest, size) =
        buffers.list.iter().max_by_key(|(_, bytes)| *bytes).expect("something takes the memory");
    let message =
        format!("the kernel needs {bytes} bytes of shared memory, and {} has {limit}", plan.target.name);
    at(kernel, *largest, Code::OutOfSharedMemory, message)
        .note(format!("found {bytes} bytes, of which this takes {size}; the limit is {limit}"))
        .hint("use smaller blocks, or a smaller num_stages")
}

/// The buffers of a function, and which of them have to be apart.
struct Buffers {
    /// Each with its bytes, the largest first.
    list: Vec<(Inst, u32)>,
    /// Both are in use at one time.
    in_use: BTreeSet<(Inst, Inst)>,
    /// One may follow the other without a wait between.
    in_sequence: BTreeSet<(Inst, Inst)>,
    /// The innermost loop around each.
    loops: SecondaryMap<Inst, Option<Inst>>,
}

struct Placed {
    /// From where to where.
    ranges: SecondaryMap<Inst, Option<(u64, u64)>>,
    bytes: u64,
}

impl Buffers {
    fn new(function: &Function, exchanges: &Exchanges) -> Self {
        let mut numbering = Numbering::new(function);
        numbering.block(function.entry);
        let mut list = Vec::new();
        for inst in &numbering.order {
            let bytes = exchanges[*inst].as_ref().map_or(0, Exchange::shared_bytes);
            if bytes > 0 {
                list.push((*inst, bytes));
            }
        }
        let mut in_use = BTreeSet::new();
        let ranges: Vec<(Inst, (u32, u32))> =
            list.iter().map(|(inst, _)| (*inst, numbering.live_range(exchanges, *inst))).collect();
        for (number, (a, (_, end))) in ranges.iter().enumerate() {
            // They stand in the order in which they begin.
            let during = ranges[number + 1..].iter().take_while(|(_, (start, _))| start <= end);
            in_use.extend(during.map(|(b, _)| pair(*a, *b)));
        }
        list.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Self { list, in_use, in_sequence: in_sequence(function, exchanges), loops: numbering.loops }
    }

    /// First fit, the largest first.
    fn place(&self, apart: &BTreeSet<(Inst, Inst)>) -> Placed {
        let mut neighbours: SecondaryMap<Inst, Vec<Inst>> = SecondaryMap::new();
        for (a, b) in apart {
            neighbours[*a].push(*b);
            neighbours[*b].push(*a);
        }
        let mut ranges: SecondaryMap<Inst, Option<(u64, u64)>> = SecondaryMap::new();
        let mut total = 0;
        for (inst, bytes) in &self.list {
            let mut taken: Vec<(u64, u64)> =
                neighbours[*inst].iter().filter_map(|other| ranges[*other]).collect();
            taken.sort_unstable();
            let bytes = u64::from(*bytes);
            let alignment = bytes.next_power_of_two().clamp(ALIGNMENT, LINE);
            let mut start = 0;
            for (from, to) in taken {
                if start + bytes <= from {
                    break;
                }
                start = start.max(to.next_multiple_of(alignment));
            }
            ranges[*inst] = Some((start, start + bytes));
            total = total.max(start + bytes);
        }
        Placed { ranges, bytes: total }
    }
}

fn pair(a: Inst, b: Inst) -> (Inst, Inst) {
    if a < b { (a, b) } else { (b, a) }
}

/// The pairs of buffers of which one may be stored into while accesses to the other are under way.
fn in_sequence(function: &Function, exchanges: &Exchanges) -> BTreeSet<(Inst, Inst)> {
    let mut pairs = BTreeSet::new();
    walk(function, &mut |inst, open| {
        let events = events(function, exchanges, inst);
        // What was stored has to be waited for wherever it is.
        if open.needs_wait(&events, |a, b| a == b) {
            open.close();
        }
        if let Some(Event::Write(buffer)) = events.first() {
            pairs.extend(open.reads.iter().chain(&open.writes).map(|other| pair(*other, *buffer)));
        }
        open.carry_out(&events);
    });
    pairs
}

/// Instructions in the order of the text.
struct Numbering<'a> {
    function: &'a Function,
    order: Vec<Inst>,
    /// The number of each instruction, and that of the last one inside it.
    numbers: SecondaryMap<Inst, (u32, u32)>,
    /// The innermost loop around each.
    loops: SecondaryMap<Inst, Option<Inst>>,
    enclosing: Vec<Inst>,
    /// The products that use what an instruction makes.
    users: SecondaryMap<Inst, Vec<Inst>>,
}

impl<'a> Numbering<'a> {
    fn new(function: &'a Function) -> Self {
        Self {
            function,
            order: Vec::new(),
            numbers: SecondaryMap::new(),
            loops: SecondaryMap::new(),
            enclosing: Vec::new(),
            users: SecondaryMap::new(),
        }
    }

    fn block(&mut self, block: Block) {
        let function = self.function;
        for inst in &function.blocks[block].insts {
            let data = &function.insts[*inst];
            let number = self.order.len() as u32;
            self.order.push(*inst);
            self.loops[*inst] = self.enclosing.last().copied();
            let is_loop = matches!(data.op, Op::For { .. } | Op::While {});
            if is_loop {
                self.enclosing.push(*inst);
            }
            for region in &data.regions {
                self.block(*region);
            }
            if is_loop {
                self.enclosing.pop();
            }
            if matches!(data.op, Op::Dot { .. }) {
                for maker in data.operands.iter().filter_map(|operand| function.defining_inst(*operand)) {
                    self.users[maker].push(*inst);
                }
            }
            self.numbers[*inst] = (number, self.order.len() as u32 - 1);
        }
    }

    /// From where to where a buffer is in use. One that is stored into before a loop and loaded from in it is in use to the
    /// end of the loop.
    fn live_range(&self, exchanges: &Exchanges, inst: Inst) -> (u32, u32) {
        let (first, mut last) = self.numbers[inst];
        if matches!(exchanges[inst], Some(Exchange::Operand { .. })) {
            for user in &self.users[inst] {
                let mut end = self.numbers[*user].1;
                let mut around = self.loops[*user];
                while let Some(outer) = around.filter(|_| around != self.loops[inst]) {
                    end = self.numbers[outer].1;
                    around = self.loops[outer];
                }
                last = last.max(end);
            }
        }
        (first, last)
    }
}
