//! Records launches in the simulator as traces, such as those of Gluon kernels.
//!
//! An op of the trace is what one source line does: its loads, its copies, its arrivals. The
//! instructions of a line that a warp executes one after the other are one event.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;
use tilewright_base::SourceMap;
use tilewright_compiler::MachineCode;
use tilewright_cpu::Interrupt;
use tilewright_sim::{ClusterEvents, Event, EventKind, Events, Location};
use tilewright_trace::{self as trace, Kind, Role, SourceRange, ValueInfo};

use crate::gpu::{self, Record};
use crate::specialize::cpu_argument;
use crate::trace::{TraceRequest, bits_of, found};
use crate::{Error, Grid, Handle, Region, Value, sanitize};

/// The lanes of a warp.
const LANES: u32 = 32;

impl Handle {
    /// Launches in the simulator, and records the events of each program.
    pub(crate) fn launch_simulated(
        &self,
        grid: Grid,
        (arguments, foreign): (&[Value<'_>], &[Region<'_>]),
        interrupt: Interrupt<'_>,
        request: &TraceRequest<'_>,
    ) -> Result<(), Error> {
        let checks = request.checks.with(sanitize::active());
        let (events, findings) = (Events::new(request.limits.bytes), Mutex::default());
        let loaded = self.loaded()?;
        let began = Instant::now();
        let run = || match loaded {
            Some(loaded) if !grid.is_empty() => {
                let record = Record { events: &events, findings: &findings };
                gpu::record(self, loaded, grid, (arguments, foreign), interrupt, record)
            }
            Some(_) | None => Ok(()),
        };
        let outcome = if checks == sanitize::active() {
            run()
        } else {
            let (outcome, reports, dropped) = sanitize::with_checks(checks, run);
            sanitize::keep_reports_of_launch(reports, dropped);
            outcome
        };
        let nanoseconds = began.elapsed().as_nanos() as u64;
        let sources = &self.compiled.module.sources;
        let (clusters, instructions) = events.into_parts();
        let table = OpTable::new(&clusters, &instructions, sources, &request.tensors);
        let warps = match &*self.compiled.code {
            MachineCode::Gpu(code) => code.threads.div_ceil(LANES),
            MachineCode::Cpu(_) => 0,
        };
        let launch = self.described(grid, arguments, request, table.described())?;
        let TraceRequest { recorder, number, limits, .. } = *request;
        let recording = trace::Recording::begin(recorder, number, &launch, limits);
        let simulation = trace::Simulation {
            device: self.device().to_string(),
            warps,
            code: self.compiled.gpu_description(),
        };
        recorder.simulation(number, &simulation);
        let mut batch = recording.batch();
        for (index, cluster) in clusters.iter().enumerate() {
            table.write(index, cluster, warps, &mut batch);
        }
        drop(batch);
        if !checks.is_empty() {
            let findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
            // A lane of the simulator is no index in a tile.
            let page =
                |finding| trace::Finding { lane: Vec::new(), ..found(finding, sources, grid.extents()) };
            let findings: Vec<_> = findings.iter().map(page).collect();
            recorder.findings(number, &checks.to_string(), &findings);
        }
        recording.end(nanoseconds, outcome.as_ref().err().map(ToString::to_string).as_deref());
        outcome
    }

    fn described(
        &self,
        grid: Grid,
        arguments: &[Value<'_>],
        request: &TraceRequest<'_>,
        ops: Vec<trace::Op>,
    ) -> Result<trace::Launch, Error> {
        let mut passed = Vec::new();
        self.pass(arguments, &mut |element, value| {
            passed.push(cpu_argument(element, value)?);
            Some(())
        })?;
        let module = &self.compiled.module;
        let kernel = module.kernel();
        let values = &kernel.blocks[kernel.entry].parameters;
        let parameter =
            |((parameter, &value), argument): ((&tilewright_ir::Parameter, _), _)| trace::Parameter {
                name: parameter.name.to_string(),
                dtype: kernel.ty(value).to_string(),
                bits: bits_of(argument),
            };
        let file = |file: &tilewright_base::SourceFile| trace::File {
            name: file.name.clone(),
            text: if file.is_library() { String::new() } else { file.text.clone() },
            first_line: file.first_line,
        };
        let programs: u64 = grid.extents().iter().map(|&extent| u64::from(extent)).product();
        let codegen = self.compiled.metadata.codegen;
        Ok(trace::Launch {
            kernel: self.compiled.name.clone(),
            grid: grid.extents(),
            every: programs.div_ceil(request.limits.programs.max(1)).max(1),
            interpreted: false,
            files: module.sources.files().map(|(_, source)| file(source)).collect(),
            parameters: kernel.parameters.iter().zip(values).zip(&passed).map(parameter).collect(),
            tensors: request.tensors.clone(),
            constants: request.constants.clone(),
            ops,
            ir: String::new(),
            warps_and_stages: [codegen.num_warps, codegen.num_stages],
        })
    }
}

/// An op: what the instructions of a source line do to one kind of memory.
#[derive(Debug)]
struct LineOp {
    kind: EventKind,
    place: Option<SourceRange>,
    /// True if the op accesses a tensor of the launch.
    is_known: bool,
    /// The element type of the accessed tensor, and its size in bytes.
    dtype: String,
    size: u32,
    /// The lanes, or the rows of the box.
    rows: u32,
    columns: u32,
}

/// The ops of a launch, and the events of each cluster.
#[derive(Debug, Default)]
struct OpTable<'a> {
    ops: Vec<LineOp>,
    clusters: Vec<Vec<MergedEvent<'a>>>,
    /// The first column of the elements of an instruction in its op.
    columns: FxHashMap<(usize, u32), u32>,
}

/// An event of the trace: events of one warp and one op.
#[derive(Debug)]
struct MergedEvent<'a> {
    op: usize,
    parts: Vec<&'a Event>,
}

impl<'a> OpTable<'a> {
    fn new(
        clusters: &'a [ClusterEvents],
        instructions: &'a [(Location, String)],
        sources: &SourceMap,
        tensors: &[trace::Tensor],
    ) -> Self {
        let mut table = Self::default();
        // In an unrolled loop, a line has several ops: one for the instructions of each iteration.
        let mut known: FxHashMap<(LineKey<'a>, u32), usize> = FxHashMap::default();
        let mut widths: FxHashMap<(usize, u32), u32> = FxHashMap::default();
        for cluster in clusters {
            let mut found = Vec::new();
            for (line, parts) in merged(&cluster.events, instructions) {
                let first = if is_access(line.0) { parts[0].instruction } else { 0 };
                let op = *known.entry((line, first)).or_insert(table.ops.len());
                if op == table.ops.len() {
                    table.ops.push(LineOp::new(line.0, line.1.and_then(|line| range(sources, line))));
                }
                for event in &parts {
                    table.ops[op].find_tensor(event, tensors);
                }
                found.push(MergedEvent { op, parts });
            }
            table.clusters.push(found);
        }
        for MergedEvent { op, parts } in table.clusters.iter().flatten() {
            let own = &mut table.ops[*op];
            for event in parts {
                for piece in &event.pieces {
                    own.rows = own.rows.max(piece.row + 1);
                    let width = (piece.offset + piece.bytes).div_ceil(own.size);
                    let known = widths.entry((*op, event.instruction)).or_default();
                    *known = width.max(*known);
                }
            }
        }
        let mut keys: Vec<_> = widths.into_iter().collect();
        keys.sort_unstable();
        for (key, width) in keys {
            table.columns.insert(key, table.ops[key.0].columns);
            table.ops[key.0].columns += width;
        }
        table
    }

    fn described(&self) -> Vec<trace::Op> {
        self.ops.iter().map(LineOp::described).collect()
    }

    fn write(&self, index: usize, cluster: &ClusterEvents, warps: u32, batch: &mut trace::Batch<'_>) {
        batch.begin(cluster.cluster);
        let merged = &self.clusters[index];
        let last = merged.len().saturating_sub(1);
        for (index, event) in merged.iter().enumerate() {
            let own = &self.ops[event.op];
            let is_access = own.is_access();
            // The program has accessed memory of the module, such as a tensor map.
            let is_foreign = is_access && !own.is_known;
            if is_foreign && !(cluster.has_stopped && index == last) || !is_access && !batch.has_values() {
                continue;
            }
            if !batch.event(event.op as u32) {
                break;
            }
            if is_access {
                self.write_access(event, batch);
            }
            if batch.has_values() {
                for bits in own.facts(&event.parts, warps) {
                    batch.uniform(bits);
                }
                batch.end_event(0);
            }
        }
        batch.end(0, cluster.has_stopped);
    }

    fn write_access(&self, MergedEvent { op, parts }: &MergedEvent<'_>, batch: &mut trace::Batch<'_>) {
        let own = &self.ops[*op];
        let elements = (own.rows * own.columns) as usize;
        let (mut addresses, mut mask) = (vec![0; elements], vec![0; elements]);
        for event in parts {
            let first = self.columns.get(&(*op, event.instruction)).copied().unwrap_or_default();
            for piece in &event.pieces {
                let start = first + piece.offset / own.size;
                for index in 0..piece.bytes.div_ceil(own.size) {
                    let element = (piece.row * own.columns + start + index) as usize;
                    addresses[element] = (piece.address + u64::from(index * own.size)) as i64;
                    mask[element] = 1;
                }
            }
        }
        batch.relative_to(None);
        batch.pointers(addresses.into_iter());
        batch.bits(&mask);
    }
}

/// The kind of an event, and the file and the line of its instruction.
type LineKey<'a> = (EventKind, Option<(&'a str, u32)>);

/// Groups the events: those of a warp that are one execution of a line are one event.
fn merged<'a>(
    events: &'a [Event],
    instructions: &'a [(Location, String)],
) -> Vec<(LineKey<'a>, Vec<&'a Event>)> {
    let mut merged: Vec<(LineKey<'a>, Vec<&'a Event>)> = Vec::new();
    // The last event of each warp.
    let mut last: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    for event in events {
        let location = instructions.get(event.instruction as usize).map(|(location, _)| location);
        let line = location.and_then(|location| location.kernel.as_ref());
        let line = (event.kind, line.map(|(file, line)| (file.as_str(), *line)));
        let warp = (event.rank, event.warp);
        let may_merge = is_access(event.kind) || is_dot(event.kind);
        let is_again = |known: &&Event| known.instruction == event.instruction;
        let open = last.get(&warp).map(|&index| &mut merged[index]);
        let open = open.filter(|(open, parts)| may_merge && *open == line && !parts.iter().any(is_again));
        if let Some((_, parts)) = open {
            parts.push(event);
        } else {
            last.insert(warp, merged.len());
            merged.push((line, vec![event]));
        }
    }
    merged
}

fn is_access(kind: EventKind) -> bool {
    use EventKind as E;
    matches!(kind, E::Load | E::Store | E::Atomic | E::CopyToShared | E::CopyToGlobal)
}

fn is_dot(kind: EventKind) -> bool {
    matches!(kind, EventKind::Dot | EventKind::SyncDot)
}

impl LineOp {
    fn new(kind: EventKind, place: Option<SourceRange>) -> Self {
        let is_of_lanes = matches!(kind, EventKind::Load | EventKind::Store | EventKind::Atomic);
        let rows = if is_of_lanes { LANES } else { 1 };
        Self { kind, place, is_known: false, dtype: "uint8".into(), size: 1, rows, columns: 0 }
    }

    /// Sets the element type to that of the first tensor that an event of the op accesses.
    fn find_tensor(&mut self, event: &Event, tensors: &[trace::Tensor]) {
        if self.is_known {
            return;
        }
        let containing = |address: u64| tensors.iter().find(|tensor| tensor.element_index(address).is_some());
        if let Some(tensor) = event.pieces.iter().find_map(|piece| containing(piece.address)) {
            (self.is_known, self.dtype, self.size) = (true, tensor.dtype.clone(), tensor.size.max(1));
        }
    }

    fn is_access(&self) -> bool {
        is_access(self.kind)
    }

    fn is_copy(&self) -> bool {
        matches!(self.kind, EventKind::CopyToShared | EventKind::CopyToGlobal)
    }

    fn described(&self) -> trace::Op {
        let scalar = |role| ValueInfo { role, dtype: "int32".into(), size: 4, shape: Vec::new() };
        let mut values = Vec::new();
        if self.is_access() {
            let shape = vec![self.rows, self.columns];
            let pointer = format!("*{}", self.dtype);
            values.push(ValueInfo { role: Role::Pointer, dtype: pointer, size: 8, shape: shape.clone() });
            values.push(ValueInfo { role: Role::Mask, dtype: "int1".into(), size: 1, shape });
        }
        values.extend(self.roles().iter().map(|&role| scalar(role)));
        let (kind, name) = names(self.kind);
        let places = self.place.into_iter().collect();
        trace::Op { name: name.into(), kind, parent: None, places, values }
    }

    fn roles(&self) -> &'static [Role] {
        match self.kind {
            _ if self.is_copy() => &[Role::Warp, Role::Block, Role::Memory, Role::Bytes],
            _ if self.is_access() => &[Role::Warp],
            _ if is_dot(self.kind) => &[Role::Warp, Role::Count],
            EventKind::CommitCopies | EventKind::CommitStores | EventKind::CommitDots => &[Role::Warp],
            EventKind::WaitCopies | EventKind::WaitStores | EventKind::WaitDots => &[Role::Warp, Role::Count],
            _ => &[
                Role::Warp,
                Role::Block,
                Role::Barrier,
                Role::Phase,
                Role::Count,
                Role::Bytes,
                Role::Completes,
            ],
        }
    }

    /// Returns the bits of the value of each role.
    fn facts(&self, parts: &[&Event], warps: u32) -> Vec<u64> {
        let Event { rank, warp, detail, .. } = parts[0];
        let (block, place) = detail.place.unwrap_or_default();
        let value = |role: &Role| match role {
            Role::Warp => u64::from(rank * warps + warp),
            Role::Block => block.into(),
            Role::Memory | Role::Barrier => place.into(),
            Role::Phase => u64::from((detail.phase as i32).cast_unsigned()),
            Role::Count => parts.iter().map(|part| u64::from(part.detail.count)).sum(),
            Role::Bytes => parts.iter().map(|part| u64::from(part.detail.bytes)).sum(),
            _ => detail.completes.into(),
        };
        self.roles().iter().map(value).collect()
    }
}

/// Returns the kind and the name of an op in a trace.
fn names(kind: EventKind) -> (Kind, &'static str) {
    match kind {
        EventKind::Load => (Kind::Load, "load"),
        EventKind::Store => (Kind::Store, "store"),
        EventKind::Atomic => (Kind::Atomic, "atomic"),
        EventKind::CopyToShared => (Kind::Load, "copy_to_shared"),
        EventKind::CopyToGlobal => (Kind::Store, "copy_to_global"),
        EventKind::Complete => (Kind::Sync, "complete"),
        EventKind::Init => (Kind::Sync, "init"),
        EventKind::Arrive => (Kind::Sync, "arrive"),
        EventKind::Expect => (Kind::Sync, "expect"),
        EventKind::Blocked => (Kind::Sync, "blocked"),
        EventKind::Wait => (Kind::Sync, "wait"),
        EventKind::Dot => (Kind::Dot, "dot"),
        EventKind::SyncDot => (Kind::Dot, "sync_dot"),
        EventKind::CommitCopies => (Kind::Sync, "commit_copies"),
        EventKind::CommitStores => (Kind::Sync, "commit_stores"),
        EventKind::CommitDots => (Kind::Sync, "commit_dots"),
        EventKind::WaitCopies => (Kind::Sync, "wait_copies"),
        EventKind::WaitStores => (Kind::Sync, "wait_stores"),
        EventKind::WaitDots => (Kind::Sync, "wait_dots"),
        EventKind::BarrierArrive => (Kind::Sync, "barrier_arrive"),
        EventKind::BarrierPass => (Kind::Sync, "barrier_pass"),
    }
}

/// Returns the range of a line, without its indentation, in the files of a trace.
fn range(sources: &SourceMap, (name, line): (&str, u32)) -> Option<SourceRange> {
    let file = |(index, (_, file)): (usize, (_, &tilewright_base::SourceFile))| {
        let number = line.checked_sub(file.first_line).filter(|_| file.name == name)?;
        let text = file.text.lines().nth(number as usize)?;
        let indent = text.chars().take_while(|letter| letter.is_whitespace()).count() as u32;
        let end = text.trim_end().chars().count() as u32;
        let (column, end_column) = (indent + 1, end.max(indent) + 1);
        Some(SourceRange { file: index as u32, line, column, end_line: line, end_column })
    };
    sources.files().enumerate().find_map(file)
}
