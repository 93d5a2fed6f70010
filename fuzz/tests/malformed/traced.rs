//! Builds the trace that the tests mutate. It is the trace of a launch whose values have every form
//! of the trace format.

use tilewright_trace::{
    Batch, File, Finding, Kind, Launch, Limits, Occurrence, Op, Parameter, Recorder, Recording, Role,
    SourceRange, Tensor, ValueInfo,
};

fn value(role: Role, dtype: &str, size: u32, shape: &[u32]) -> ValueInfo {
    ValueInfo { role, dtype: dtype.into(), size, shape: shape.to_vec() }
}

fn op(name: &str, kind: Kind, values: Vec<ValueInfo>) -> Op {
    let place = SourceRange { file: 0, line: 3, column: 5, end_line: 3, end_column: 9 };
    Op { name: name.into(), kind, parent: None, places: vec![place], values }
}

/// Returns a kernel that loads four elements and stores them under a mask.
fn launch() -> Launch {
    let access = |role| {
        vec![
            value(Role::Pointer, "*fp32", 8, &[4]),
            value(Role::Mask, "int1", 1, &[4]),
            value(role, "fp32", 4, &[4]),
        ]
    };
    let tensor = |name: &str, address, shape: &[u64], strides: &[i64]| Tensor {
        name: name.into(),
        dtype: "fp32".into(),
        size: 4,
        address,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
    };
    Launch {
        kernel: "k\"é".into(),
        grid: [4, 1, 1],
        every: 3,
        interpreted: false,
        files: vec![File { name: "k.py".into(), text: "a\n\tb".into(), first_line: 7 }],
        parameters: vec![
            Parameter { name: "x".into(), dtype: "*fp32".into(), bits: 0x1000 },
            Parameter { name: "y".into(), dtype: "*fp32".into(), bits: 0x2000 },
            Parameter { name: "n".into(), dtype: "int32".into(), bits: u64::from(u32::MAX) },
        ],
        tensors: vec![tensor("x", 0x1000, &[5, 2], &[2, 1]), tensor("y", 0x2000, &[10], &[1])],
        constants: vec![("B".into(), "4".into())],
        ops: vec![
            op("load", Kind::Load, access(Role::Result)),
            op("store", Kind::Store, access(Role::Operand)),
        ],
        ir: "entry fn0 @k() {\n}\n".into(),
        warps_and_stages: [8, 3],
    }
}

/// Records program `p`, which loads four elements of `x` from index `2 * p` on. The program stores
/// them to `y` from index `2 * p` on. The stores of neighboring programs therefore overlap.
fn program(batch: &mut Batch<'_>, number: u64) {
    batch.begin(number);
    let offset = 8 * number as i64;
    for op in [0, 1] {
        if !batch.event(op) {
            break;
        }
        batch.relative_to(Some(op as usize));
        match number % 3 {
            0 => batch.affine(offset, &[4]),
            1 => batch.pointers((0..4).map(|lane| offset + 4 * lane)),
            _ => batch.pointers(
                (0..4)
                    .map(|lane| offset + 4 * lane + (i64::from(u32::MAX) << 8))
                    .map(|far| far - (i64::from(u32::MAX) << 8)),
            ),
        }
        match number % 2 {
            0 => batch.ranges([(0, 3)].into_iter()),
            _ => batch.bits(&[1, 1, 1, 0]),
        }
        if batch.has_values() {
            let bytes: Vec<u8> = (0..4_u8).flat_map(|lane| f32::from(lane).to_le_bytes()).collect();
            batch.elements(&bytes);
            batch.end_event(5);
        }
    }
    batch.end(100 + number, false);
}

/// Returns a race between programs 0 and 1 for an element of the tensor `y`.
fn finding() -> Finding {
    Finding {
        check: "race".into(),
        place: Some(("k.py".into(), 8, 2)),
        lane: vec![2],
        count: 3,
        occurrences: vec![Occurrence { program: 1, element: Some(("y".into(), 2)), other: Some(0) }],
        ..Finding::default()
    }
}

/// Returns the bytes of a trace of four programs. Two of the programs have values.
pub fn file() -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("tilewright-malformed-{}", std::process::id()));
    let recorder = Recorder::create(&path).expect("the folder is there");
    let launch = launch();
    let number = recorder.next_launch();
    recorder.snapshot(number, 1, true, &[1, 2, 3, 4]);
    let recording = Recording::begin(&recorder, number, &launch, Limits::default());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let recording = &recording;
            scope.spawn(move || {
                let mut batch = recording.batch();
                (0..4).filter(|number| number % 2 == thread).for_each(|p| program(&mut batch, p));
            });
        }
    });
    recorder.findings(number, "bounds,race", &[finding()]);
    recording.end(12345, None);
    assert!(recorder.take_failure().is_none());
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it was written");
    bytes
}
