//! Finds the steps that a traced launch records, and the recorded values.

use tilewright_base::{SourceMap, Span};
use tilewright_ir::{Op, OpFamily};
use tilewright_trace as trace;
use tilewright_trace::{Kind, Role};

use crate::program::describe::op_name;
use crate::program::{Action, BlockId, Program, Slot, Step, Use};
use crate::types::TileType;

/// The steps of a program that a traced launch records, and the values that it records of each
/// step.
#[derive(Debug, Default)]
pub struct TracePoints {
    /// The op table of the trace.
    pub ops: Vec<trace::Op>,
    /// The source files to which the source positions of `ops` refer.
    pub files: Vec<trace::File>,
    /// For each block, the index in `points` of each of its steps. An index is `None` for a step
    /// that is not recorded.
    pub(crate) steps: Vec<Vec<Option<u32>>>,
    /// For each block that is the body of a recorded loop, the index of the loop in `points`.
    pub(crate) loops: Vec<Option<u32>>,
    /// The trace points, at the same indices as in `ops`.
    pub(crate) points: Vec<TracePoint>,
}

/// The values that a launch records of a step.
#[derive(Debug, Default)]
pub(crate) struct TracePoint {
    /// True for a memory access. Every program records its pointers and mask. Only selected
    /// programs record other values.
    pub is_access: bool,
    pub operands: Operands,
    pub results: Vec<Slot>,
}

impl Program {
    /// Returns the trace points of the steps that each program of the grid executes.
    pub fn trace_points(&self) -> TracePoints {
        let mut points = TracePoints {
            steps: vec![Vec::new(); self.blocks.len()],
            loops: vec![None; self.blocks.len()],
            files: files(&self.sources),
            ..TracePoints::default()
        };
        points.block(self, self.body, None);
        points
    }

    /// Returns the name and the type of each parameter, for a trace.
    pub fn traced_parameters(&self) -> impl Iterator<Item = (String, String)> {
        self.parameters
            .iter()
            .map(|parameter| (parameter.name.to_string(), type_name(self.ty(parameter.slot))))
    }
}

fn files(sources: &SourceMap) -> Vec<trace::File> {
    let file = |file: &tilewright_base::SourceFile| trace::File {
        name: file.name.clone(),
        // Traces omit the text of the library.
        text: if file.is_library() { String::new() } else { file.text.clone() },
        first_line: file.first_line,
    };
    sources.files().map(|(_, source)| file(source)).collect()
}

fn place(sources: &SourceMap, span: Span) -> trace::SourceRange {
    let file = sources.file(span.file);
    let ((line, column), (end_line, end_column)) = (file.line_column(span.start), file.line_column(span.end));
    // `line_column` counts the indentation that was removed from the file, but the text in the
    // trace lacks it.
    let (column, end_column) = (column - file.removed_columns, end_column - file.removed_columns);
    let number = sources.files().position(|(id, _)| id == span.file).unwrap_or(0) as u32;
    trace::SourceRange { file: number, line, column, end_line, end_column }
}

fn type_name(ty: &TileType) -> String {
    match ty.element.pointee() {
        Some(pointee) => format!("*{}", pointee.name()),
        None => ty.dtype().name().into(),
    }
}

fn value(role: Role, ty: &TileType) -> trace::ValueInfo {
    trace::ValueInfo { role, dtype: type_name(ty), size: ty.size as u32, shape: ty.shape().to_vec() }
}

impl TracePoints {
    fn block(&mut self, program: &Program, block: BlockId, parent: Option<u32>) {
        let mut numbers = Vec::new();
        for step in &program.blocks[block as usize].steps {
            let described = describe(step);
            let mut inner = parent;
            numbers.push(described.map(|(kind, name, operands)| {
                let number = self.add(program, step, (kind, name), operands, parent);
                if kind == Kind::Loop {
                    let body = step.blocks.last().copied().unwrap_or(block);
                    self.loops[body as usize] = Some(number);
                    inner = Some(number);
                }
                number
            }));
            // The steps inside of a reduction, scan or map have no events.
            if !matches!(step.action, Action::Reduce { .. } | Action::Scan { .. } | Action::Map { .. }) {
                for &nested in &step.blocks {
                    self.block(program, nested, inner);
                }
            }
        }
        self.steps[block as usize] = numbers;
    }

    fn add(
        &mut self,
        program: &Program,
        step: &Step,
        (kind, name): (Kind, String),
        operands: Operands,
        parent: Option<u32>,
    ) -> u32 {
        let mut values: Vec<_> = operands
            .iter()
            .map(|&(role, operand)| value(role, &program.types[operand.ty as usize]))
            .collect();
        let mut results = Vec::new();
        if kind == Kind::Loop {
            let body = step.blocks.last().map(|&body| &program.blocks[body as usize]);
            let counter = body.and_then(|body| body.parameters.first()).filter(|_| step.blocks.len() == 1);
            values.extend(counter.map(|&counter| value(Role::Counter, program.ty(counter))));
        } else {
            results.extend(step.results.iter().copied());
            values.extend(results.iter().map(|&result| value(Role::Result, program.ty(result))));
        }
        let places = program.sites[step.site as usize].iter();
        let places = places.map(|&span| place(&program.sources, span)).collect();
        self.ops.push(trace::Op { name, kind, parent, places, values });
        self.points.push(TracePoint { is_access: kind.is_access(), operands, results });
        self.ops.len() as u32 - 1
    }
}

type Operands = Vec<(Role, Use)>;

/// Returns the kind, the name and the operands of a recorded step, or `None`.
fn describe(step: &Step) -> Option<(Kind, String, Operands)> {
    let roles = |roles: &[Role]| roles.iter().copied().zip(step.operands.iter().copied()).collect();
    let operands = || step.operands.iter().map(|&operand| (Role::Operand, operand)).collect();
    let op = match &step.action {
        Action::Op(op) => op,
        Action::Dot { .. } => {
            return Some((Kind::Dot, "dot".into(), roles(&[Role::Left, Role::Right, Role::Accumulator])));
        }
        Action::Reduce { .. } => return Some((Kind::Reduce, "reduce".into(), operands())),
        Action::Scan { .. } => return Some((Kind::Scan, "scan".into(), operands())),
        Action::Map { .. } => return Some((Kind::Value, "map".into(), operands())),
        Action::Assembly(_) => return Some((Kind::Value, "inline_asm".into(), operands())),
        Action::Sort(_) | Action::Fused(_) | Action::Nest(_) => return None,
    };
    let (kind, roles): (Kind, Operands) = match op {
        Op::Load { .. } => (Kind::Load, roles(&[Role::Pointer, Role::Mask, Role::Other])),
        Op::AtomicLoad { .. } => (Kind::Atomic, roles(&[Role::Pointer, Role::Mask])),
        Op::Store { .. } => (Kind::Store, pointers_first(roles(&[Role::Pointer, Role::Operand, Role::Mask]))),
        Op::AtomicRmw { .. } | Op::AtomicStore { .. } => {
            (Kind::Atomic, pointers_first(roles(&[Role::Pointer, Role::Operand, Role::Mask])))
        }
        Op::AtomicCas { .. } | Op::AtomicPoll { .. } => {
            (Kind::Atomic, roles(&[Role::Pointer, Role::Operand, Role::Operand]))
        }
        Op::For { .. } | Op::While {} => (Kind::Loop, Vec::new()),
        Op::ProgramId { .. } => (Kind::Value, Vec::new()),
        // The accesses that use the pointers record them.
        Op::PtrAdd {} => return None,
        // tidy: wildcard because the family of any other op says whether it computes elements
        op => match op.family() {
            OpFamily::Pointwise | OpFamily::Movement => (Kind::Value, Vec::new()),
            OpFamily::Reduction => (Kind::Reduce, operands()),
            OpFamily::Scan => (Kind::Scan, operands()),
            // tidy: wildcard because no other op computes elements
            _ => return None,
        },
    };
    Some((kind, op_name(op), roles))
}

/// Moves the pointer and the mask, which every program records, to the front.
fn pointers_first(mut operands: Operands) -> Operands {
    operands.sort_by_key(|(role, _)| !matches!(role, Role::Pointer | Role::Mask));
    operands
}
