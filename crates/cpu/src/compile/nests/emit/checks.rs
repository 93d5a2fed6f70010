//! Emits the checks of a nest, which precede its first effect.
//!
//! Each access must stay inside its memory. Accesses may overlap only where the order of the loops
//! allows it.

use rustc_hash::FxHashMap;
use tilewright_ir::Op;
use tilewright_native::Place;
use tilewright_native::ir::{IntBinary, IntCompare, Value};

use super::super::plan::Form;
use super::Emitter;
use crate::program::nest::Word;
use crate::program::{Action, Slot, Step};
use crate::run::memory::LINE;
use crate::tuning::{PREFETCHED_BYTES, PREFETCHED_ROWS};

pub(super) struct Access {
    pub member: usize,
    pub is_store: bool,
    /// The number of elements per row.
    extent: usize,
    size: usize,
    /// The distance in bytes between neighbors of a row, if the compiler knows it.
    stride: Option<i64>,
    phase: usize,
    /// The last phase that executes the access. Later phases may repeat a load.
    pub last_phase: usize,
}

/// The addresses of an access, in one row or in the rows so far.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// The address of the element at index 0.
    base: Value,
    /// The address of the first byte, and the address after the last byte.
    pub first: Value,
    pub end: Value,
}

/// A load that reads different memory in each row of the nest.
pub(super) struct DistantRow {
    pointer: Slot,
    length: usize,
    /// The distance in bytes from the current row to the row that the nest prefetches.
    bytes: Value,
}

impl Access {
    fn is_contiguous(&self) -> bool {
        self.stride == Some(self.size as i64)
    }

    /// Returns whether the elements of a row are known not to overlap.
    fn moves(&self) -> bool {
        self.stride.is_some_and(|stride| stride.unsigned_abs() >= self.size as u64)
    }

    /// Returns an upper bound of the bytes from the first element of a row to the end of its last
    /// element. The stride must be known.
    fn reach(&self) -> i64 {
        let stride = self.stride.unwrap_or(0).saturating_abs();
        stride.saturating_mul(self.extent as i64 - 1).saturating_add(self.size as i64)
    }
}

impl Emitter<'_> {
    pub(super) fn check(&mut self, holds: Value) {
        if self.known(holds).is_some_and(|holds| holds != 0) {
            return;
        }
        let bail = self.bail;
        self.build(|builder| {
            let next = builder.block();
            builder.branch(holds, (next, &[]), (bail, &[]));
            builder.switch_to(next);
        });
    }

    pub(super) fn check_assertion(&mut self, step: &Step) {
        let _origin = self.origin(step);
        let mut holds = self.integer(step.operands[0].slot);
        if let Some(mask) = step.operands.get(1) {
            let one = self.int(1);
            let is_off = self.binary(IntBinary::Xor, self.integer(mask.slot), one);
            holds = self.binary(IntBinary::Or, holds, is_off);
        }
        self.check(holds);
    }

    /// Checks that the memory of a pointer contains `bytes` bytes from `first` on. The check
    /// succeeds if `bytes` is 0 or less.
    pub(super) fn check_inside(&mut self, step: &Step, first: Value, bytes: Value, is_store: bool) {
        let root = self.plan.root(step.operands[0].slot).expect("the plan knows the root of each pointer");
        let start = self.word(Word::RegionStart(root));
        let length = self.word(if is_store { Word::WritableLength(root) } else { Word::RegionLength(root) });
        let offset = self.sub(first, start);
        let most = self.sub(length, bytes);
        let fits = self.compare(IntCompare::LeUnsigned, bytes, length);
        let begins = self.compare(IntCompare::LeUnsigned, offset, most);
        let inside = self.binary(IntBinary::And, fits, begins);
        let zero = self.int(0);
        let is_empty = self.compare(IntCompare::LeSigned, bytes, zero);
        let holds = self.binary(IntBinary::Or, is_empty, inside);
        self.check(holds);
    }

    /// Returns the accesses to check before the first effect. The phase before a scatter checks the
    /// scatter. A load of one element that is the same in all rows has its own check.
    pub(super) fn accesses(&self) -> Vec<Access> {
        let plan = self.plan;
        let last_phases = self.last_phases();
        let mut accesses = Vec::new();
        for (member, step) in plan.members.iter().enumerate() {
            let (is_store, ty) = match step.op() {
                Some(Op::Load { .. }) => (false, self.ty(step.results[0])),
                Some(Op::Store { .. }) => (true, self.ty(step.operands[1].slot)),
                // tidy: wildcard because no other op of a nest accesses memory
                _ => continue,
            };
            if plan.scatter == Some(member) {
                continue;
            }
            let address = step.operands[0].slot;
            let pointer = plan.known[&address];
            let is_one = pointer.form == Form::Uniform;
            if is_one && !is_store && !pointer.by_row {
                continue;
            }
            let extent = if is_one { 1 } else { self.layout(address).extent };
            let stride = if is_one { Some(ty.size as i64) } else { plan.stride(address) };
            let phase = plan.phases[&member];
            let last = step.results.first().and_then(|result| last_phases.get(result));
            let last_phase = last.map_or(phase, |&last| last.max(phase));
            accesses.push(Access { member, is_store, extent, size: ty.size, stride, phase, last_phase });
        }
        accesses
    }

    pub(super) fn check_access(&mut self, access: &Access) -> Bytes {
        let step = self.plan.members[access.member];
        let _origin = self.origin(step);
        let mask = step.operands.get(1 + usize::from(access.is_store)).map(|mask| mask.slot);
        let (base, stride) = self.affine(step.operands[0].slot);
        let size = self.int(access.size as i64);
        let range = mask.and_then(|mask| self.early_range(mask, access.extent));
        let (low, high) = range.unwrap_or_else(|| (self.int(0), self.int(access.extent as i64)));
        let (first, bytes) = if access.is_contiguous() {
            let low_bytes = self.mul(low, size);
            let count = self.sub(high, low);
            (self.add(base, low_bytes), self.mul(count, size))
        } else {
            self.strided_bytes([low, high], base, stride, size)
        };
        self.check_inside(step, first, bytes, access.is_store);
        let end = self.add(first, bytes);
        if range.is_none() {
            return Bytes { base, first, end };
        }
        // An access without elements ends before all others, so it overlaps none of them.
        let zero = self.int(0);
        let is_any = self.compare(IntCompare::LtSigned, zero, bytes);
        Bytes { base, first, end: self.choose(is_any, end, zero) }
    }

    /// Returns the address of the first byte of strided elements, and the number of bytes that they
    /// span. Without elements, the number is 0.
    fn strided_bytes(
        &mut self,
        [low, high]: [Value; 2],
        base: Value,
        stride: Value,
        size: Value,
    ) -> (Value, Value) {
        // Addresses of a tile do not wrap if the distance between elements is at most `most` bytes.
        let most = self.int(1 << 32);
        let biased = self.add(stride, most);
        let range = self.int(1 << 33);
        let fits = self.compare(IntCompare::LtUnsigned, biased, range);
        self.check(fits);
        let one = self.int(1);
        let last = self.sub(high, one);
        let [low_bytes, last_bytes] = [low, last].map(|index| self.mul(index, stride));
        let lowest = self.binary(IntBinary::Min, low_bytes, last_bytes);
        let highest = self.binary(IntBinary::Max, low_bytes, last_bytes);
        let reach = self.sub(highest, lowest);
        let zero = self.int(0);
        let is_any = self.compare(IntCompare::LtSigned, low, high);
        let bytes = self.add(reach, size);
        (self.add(base, lowest), self.choose(is_any, bytes, zero))
    }

    pub(super) fn early_range(&self, mask: Slot, extent: usize) -> Option<(Value, Value)> {
        let known = self.plan.known[&mask];
        (known.phase == 0 && known.form != Form::Dense).then(|| self.range(mask, extent)).flatten()
    }

    /// Emits a loop over the rows that checks the accesses of each row, then the checks of
    /// overlaps. Returns the loads whose rows the nest prefetches.
    pub(super) fn check_rows(&mut self, accesses: &[Access]) -> Vec<DistantRow> {
        let pairs = conflicts(accesses);
        let (none, all, one, zero) = (self.int(-1), self.int(0), self.int(1), self.int(0));
        // The loop carries five values for each access: the first address so far, the last address
        // so far, the base in the previous row, the distance between rows, and whether it is
        // constant. For each pair of accesses, it carries whether their bases are equal in all
        // rows.
        let mut carried: Vec<Value> = Vec::new();
        for _ in accesses {
            carried.extend([none, all, zero, zero, one]);
        }
        carried.extend(pairs.iter().map(|_| one));
        let loops = self.begin_rows(&carried);
        let values = loops.last().expect("the nest has rows").values.clone();
        self.row_inputs();
        self.uniform_steps(0, true);
        let mut next = Vec::with_capacity(values.len());
        let mut bases = Vec::new();
        for (access, now) in accesses.iter().zip(values.chunks_exact(5)) {
            let bytes = self.check_access(access);
            let is_empty = self.compare(IntCompare::Eq, bytes.end, zero);
            let is_lower = self.compare(IntCompare::LtUnsigned, bytes.first, now[0]);
            let lowest = self.choose(is_lower, bytes.first, now[0]);
            let is_higher = self.compare(IntCompare::LtUnsigned, now[1], bytes.end);
            let highest = self.choose(is_higher, bytes.end, now[1]);
            next.push(self.choose(is_empty, now[0], lowest));
            next.push(self.choose(is_empty, now[1], highest));
            let is_first = self.compare(IntCompare::Eq, now[2], zero);
            let distance = self.sub(bytes.base, now[2]);
            let has_none = self.compare(IntCompare::Eq, now[3], zero);
            let is_same = self.compare(IntCompare::Eq, distance, now[3]);
            let is_regular = self.binary(IntBinary::Or, has_none, is_same);
            let is_regular = self.binary(IntBinary::And, is_regular, now[4]);
            next.push(bytes.base);
            next.push(self.choose(is_first, zero, distance));
            next.push(self.choose(is_first, one, is_regular));
            bases.push(bytes.base);
        }
        for (&(x, y), &now) in pairs.iter().zip(&values[5 * accesses.len()..]) {
            let is_same = self.compare(IntCompare::Eq, bases[x], bases[y]);
            next.push(self.binary(IntBinary::And, is_same, now));
        }
        let last = self.end_rows(loops, &next);
        let bytes: Vec<Bytes> = last[..5 * accesses.len()]
            .chunks_exact(5)
            .map(|now| Bytes { base: now[2], first: now[0], end: now[1] })
            .collect();
        self.check_overlaps(accesses, &bytes, Some(&last));
        self.distant_rows(accesses, &last)
    }

    /// Returns the loads that read different memory in each row. The prefetch distance is 0 if the
    /// rows are not at equal distances. `rows` has the values that [`Self::check_rows`] carries.
    fn distant_rows(&self, accesses: &[Access], rows: &[Value]) -> Vec<DistantRow> {
        let mut found = Vec::new();
        for (access, values) in accesses.iter().zip(rows.chunks_exact(5)) {
            let pointer = self.plan.members[access.member].operands[0].slot;
            let is_row = access.extent > 1 && access.is_contiguous();
            if !access.is_store && is_row && self.plan.known[&pointer].by_row {
                let ahead = self.mul(values[3], self.int(PREFETCHED_ROWS as i64));
                let bytes = self.choose(values[4], ahead, self.int(0));
                found.push(DistantRow { pointer, length: access.extent * access.size, bytes });
            }
        }
        found
    }

    /// Prefetches the beginning of later rows. The hardware prefetches the rest of a row.
    pub(super) fn prefetch(&self, rows: &[DistantRow]) {
        for &DistantRow { pointer, length, bytes } in rows {
            let base = self.add(self.affine(pointer).0, bytes);
            for offset in (0..PREFETCHED_BYTES.min(length)).step_by(LINE) {
                let place = Place { base, index: None, offset: offset as i32 };
                self.build(|builder| builder.prefetch(place));
            }
        }
    }

    /// Returns the last phase that reads each slot. A phase that reads a dense tile recomputes it,
    /// unless the nest keeps it in scratch memory.
    fn last_phases(&self) -> FxHashMap<Slot, usize> {
        let mut last: FxHashMap<Slot, usize> = FxHashMap::default();
        for (index, step) in self.plan.members.iter().enumerate().rev() {
            let phase = match (&step.action, step.results.first()) {
                (Action::Op(_) | Action::Scan { .. }, Some(result)) => {
                    let own = self.plan.known[result].phase;
                    // Only one phase computes a tile that is kept.
                    let is_kept = self.kept.contains_key(result);
                    if is_kept { own } else { last.get(result).map_or(own, |&last| last.max(own)) }
                }
                // The code before the first phase checks assertions.
                _ => self.plan.phases.get(&index).copied().unwrap_or(0),
            };
            for operand in &step.operands {
                let place = last.entry(operand.slot).or_insert(phase);
                *place = phase.max(*place);
            }
        }
        last
    }

    /// Emits the checks that accesses overlap only where the order of the loops allows it. `rows`
    /// has the values that [`Self::check_rows`] carries.
    pub(super) fn check_overlaps(&mut self, accesses: &[Access], bytes: &[Bytes], rows: Option<&[Value]>) {
        for (pair, &(x, y)) in conflicts(accesses).iter().enumerate() {
            let (first, second) = (&accesses[x], &accesses[y]);
            // Without rows, all loads of an earlier phase precede the store.
            if rows.is_none() && !first.is_store && first.last_phase < second.phase {
                continue;
            }
            let before = self.compare(IntCompare::LeUnsigned, bytes[x].end, bytes[y].first);
            let after = self.compare(IntCompare::LeUnsigned, bytes[y].end, bytes[x].first);
            let mut allowed = self.binary(IntBinary::Or, before, after);
            // The loops read each element before they write it, and write in order.
            let is_in_step = (first.extent, first.size) == (second.extent, second.size)
                && first.stride == second.stride
                && second.moves()
                && second.is_store
                && if first.is_store {
                    first.phase == second.phase
                } else {
                    first.last_phase <= second.phase
                };
            if is_in_step {
                let is_same = match rows {
                    None if bytes[x].base == bytes[y].base => continue,
                    None => self.compare(IntCompare::Eq, bytes[x].base, bytes[y].base),
                    Some(values) => {
                        let same = values[5 * accesses.len() + pair];
                        let (one, two) = (&values[5 * x..5 * x + 5], &values[5 * y..5 * y + 5]);
                        // If the rows overlapped, the nest would read elements that it wrote for
                        // the previous row.
                        let extent = self.int(first.reach());
                        let moves = self.compare(IntCompare::LeSigned, extent, one[3]);
                        let regular = self.binary(IntBinary::And, one[4], two[4]);
                        let regular = self.binary(IntBinary::And, regular, moves);
                        let is_one_loop = self.plan.space.rows.len() == 1;
                        let (regular, zero) = (if is_one_loop { regular } else { self.int(0) }, self.int(0));
                        let apart = self.is_interleaved(bytes[x].base, bytes[y].base, one[3], two[3], extent);
                        let either = self.binary(IntBinary::Or, same, apart);
                        self.choose(regular, either, zero)
                    }
                };
                allowed = self.binary(IntBinary::Or, allowed, is_same);
            }
            self.check(allowed);
        }
    }

    /// Returns whether the rows of two accesses alternate in memory without an overlap, for
    /// example:
    ///
    /// ```text
    /// x: 0..64, 256..320, 512..576    y: 128..192, 384..448, 640..704
    /// ```
    ///
    /// The rows of both accesses must be at the same distance. The distance between the accesses,
    /// modulo that distance, must leave room for `extent` bytes on both sides.
    pub(super) fn is_interleaved(
        &self,
        base: Value,
        other: Value,
        step: Value,
        other_step: Value,
        extent: Value,
    ) -> Value {
        let (zero, one) = (self.int(0), self.int(1));
        let divisor = self.binary(IntBinary::Max, step, one);
        let distance = self.sub(other, base);
        let rest = self.binary(IntBinary::RemSigned, distance, divisor);
        let is_negative = self.compare(IntCompare::LtSigned, rest, zero);
        let shifted = self.add(rest, divisor);
        let rest = self.choose(is_negative, shifted, rest);
        let after = self.compare(IntCompare::LeSigned, extent, rest);
        let most = self.sub(divisor, extent);
        let before = self.compare(IntCompare::LeSigned, rest, most);
        let fits = self.binary(IntBinary::And, after, before);
        let is_same_step = self.compare(IntCompare::Eq, step, other_step);
        self.binary(IntBinary::And, fits, is_same_step)
    }
}

/// Returns the pairs of accesses with at least one store, in the order of the steps.
fn conflicts(accesses: &[Access]) -> Vec<(usize, usize)> {
    let all = (0..accesses.len()).flat_map(|x| (x + 1..accesses.len()).map(move |y| (x, y)));
    all.filter(|&(x, y)| accesses[x].is_store || accesses[y].is_store).collect()
}
