//! Tests that the reader returns what several threads have recorded.
//!
//! Also tests truncated and damaged files, limits, and overlaps.

use std::path::PathBuf;

use tilewright_trace::{
    Batch, File, Finding, Kind, Launch, Limits, Occurrence, Op, Parameter, Recorder, Recording, Role,
    Simulation, SourceRange, Tensor, Trace, ValueInfo,
};

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tilewright-trace-{}-{name}", std::process::id()))
}

fn value(role: Role, dtype: &str, size: u32, shape: &[u32]) -> ValueInfo {
    ValueInfo { role, dtype: dtype.into(), size, shape: shape.to_vec() }
}

fn op(name: &str, kind: Kind, values: Vec<ValueInfo>) -> Op {
    let place = SourceRange { file: 0, line: 3, column: 5, end_line: 3, end_column: 9 };
    Op { name: name.into(), kind, parent: None, places: vec![place], values }
}

/// Returns the launch of a kernel that loads four elements and stores them, with a mask.
fn launch(programs: u32, every: u64) -> Launch {
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
        grid: [programs, 1, 1],
        every,
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

/// Records program p, where p is `number`: four elements are loaded from `x` at 2p and stored to
/// `y` at 2p. The mask selects the first three, so neighboring programs overlap.
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

/// Programs 0 and 1 race on an element of the tensor `y`.
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

fn written(name: &str, programs: u32, every: u64, limits: Limits) -> PathBuf {
    let path = path(name);
    let recorder = Recorder::create(&path).expect("the folder is there");
    let launch = launch(programs, every);
    let number = recorder.next_launch();
    recorder.snapshot(number, 1, true, &[1, 2, 3, 4]);
    let recording = Recording::begin(&recorder, number, &launch, limits);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let recording = &recording;
            scope.spawn(move || {
                let mut batch = recording.batch();
                (0..u64::from(programs))
                    .filter(|number| number % 2 == thread)
                    .for_each(|p| program(&mut batch, p));
            });
        }
    });
    recorder.findings(number, "bounds,race", &[finding()]);
    recording.end(12345, None);
    assert!(recorder.take_failure().is_none());
    path
}

#[test]
fn traces_round_trip() {
    let path = written("again", 4, 3, Limits::default());
    let trace = Trace::open(&path).expect("it is a trace");
    let traced = &trace.launches[0];
    assert_eq!(traced.launch, launch(4, 3));
    assert_eq!(traced.nanoseconds, 12345);
    assert_eq!(traced.programs.iter().map(|program| program.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(
        traced.programs.iter().map(tilewright_trace::Program::has_values).collect::<Vec<_>>(),
        [true, false, false, true]
    );
    for program in &traced.programs {
        let events = trace.events(traced, program);
        assert_eq!(events.iter().map(|event| event.op).collect::<Vec<_>>(), [0, 1]);
        let values = &traced.launch.ops[0].values;
        let offsets: Vec<u64> = (0..4).map(|lane| 8 * program.number + 4 * lane).collect();
        assert_eq!(events[0].values[0].expand(&values[0]), Some(offsets), "program {}", program.number);
        assert_eq!(events[0].values[1].expand(&values[1]), Some(vec![1, 1, 1, 0]));
        if program.has_values() {
            let floats: Vec<u64> = (0..4_u8).map(|lane| f32::from(lane).to_bits().into()).collect();
            assert_eq!(events[0].values[2].expand(&values[2]), Some(floats));
            assert_eq!(events[0].nanoseconds, 5);
        }
    }
    assert_eq!((&traced.checks[..], &traced.findings[..]), ("bounds,race", &[finding()][..]));
    let json = trace.launch(0).expect("there is such a launch");
    assert!(json.contains("\"occurrences\":[[1,1,2,0]]"), "{json}");
    assert_eq!(trace.snapshot(traced, 1, true), Some(&[1, 2, 3, 4][..]));
    assert_eq!(trace.snapshot(traced, 1, false), None);
}

#[test]
fn overlaps_match_a_manual_count() {
    let path = written("overlaps", 4, 1, Limits::default());
    let trace = Trace::open(&path).expect("it is a trace");
    // Program p accesses the elements 2p, 2p + 1 and 2p + 2.
    let counts: Vec<usize> =
        (0..10).map(|at| (0..4).filter(|p| (2 * p..2 * p + 3).contains(&at)).count()).collect();
    let json = trace.overlaps(0, 1).expect("there is such a tensor");
    let list = |items: &[usize]| items.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    assert!(json.contains(&format!("\"writers\":[{}]", list(&counts))), "{json}");
    assert!(json.contains("\"races\":[2,4,6]"), "{json}");
    // All programs read tensor 0, and no program writes it.
    let json = trace.overlaps(0, 0).expect("there is such a tensor");
    assert!(
        json.contains(&format!("\"readers\":[{}]", list(&counts))) && json.contains("\"races\":[]"),
        "{json}"
    );
    let who = trace.element_accesses(0, 1, 2).expect("there is such a tensor");
    assert_eq!(who, "{\"count\":2,\"partial\":false,\"accesses\":[[1,0,2],[1,1,0]]}");
}

#[test]
fn truncated_files_are_read_up_to_the_last_complete_chunk() {
    let path = written("early", 5, 1, Limits::default());
    let bytes = std::fs::read(&path).expect("it was written");
    for length in 0..bytes.len() {
        match Trace::new(bytes[..length].to_vec()) {
            Ok(trace) => {
                for (number, launch) in trace.launches.iter().enumerate() {
                    assert!(launch.programs.len() <= 5);
                    assert!(trace.launch(number).is_some());
                }
            }
            Err(_) => assert!(length < 8),
        }
    }
}

#[test]
fn damaged_files_are_rejected_or_read() {
    let bytes = std::fs::read(written("damaged", 3, 1, Limits::default())).expect("it was written");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        if let Ok(trace) = Trace::new(damaged) {
            for number in 0..trace.launches.len() {
                let _ = (trace.launch(number), trace.events_of(number, 1), trace.overlaps(number, 0));
                let _ = (
                    trace.touched(number, 1, 0),
                    trace.value(number, 1, 0, 0),
                    trace.elements(number, 1, true),
                );
            }
        }
    }
}

/// Returns the trace of a launch with one program, whose events `events` records.
fn traced(launch: &Launch, events: &dyn Fn(&mut Batch<'_>)) -> Vec<u8> {
    let path = path("malformed");
    let recorder = Recorder::create(&path).expect("the folder is there");
    let recording = Recording::begin(&recorder, recorder.next_launch(), launch, Limits::default());
    let mut batch = recording.batch();
    batch.begin(0);
    events(&mut batch);
    batch.end(1, false);
    drop(batch);
    std::fs::read(&path).expect("it was written")
}

/// Readers iterate over the outer axes, even if an inner extent is 0. Expected: malformed.
#[test]
fn tiles_without_elements_are_bounded_by_their_other_extents() {
    let mut launch = launch(1, 1);
    launch.ops[0].values[0].shape = vec![u32::MAX, 0];
    assert!(Trace::new(traced(&launch, &|_| {})).is_err());
    launch.ops[0].values[0].shape = vec![4, 0];
    assert!(Trace::new(traced(&launch, &|_| {})).is_ok());
}

/// A short event describes a tile with millions of elements. Expected: a partial result.
#[test]
fn visited_lanes_are_bounded_by_the_size_of_the_file() {
    let mut launch = launch(1, 1);
    launch.ops[0].values.truncate(1);
    launch.ops[0].values[0].shape = vec![1 << 24];
    let events = |batch: &mut Batch<'_>| {
        for _ in 0..1000 {
            assert!(batch.event(0));
            batch.relative_to(Some(0));
            batch.affine(0, &[0]);
            batch.end_event(u64::MAX);
        }
    };
    let trace = Trace::new(traced(&launch, &events)).expect("it is a trace");
    let json = trace.launch(0).expect("there is such a launch");
    assert!(json.contains("\"partial\":true") && json.contains("\"events\":1000"), "{json}");
    assert_eq!(trace.overlaps(0, 0).expect("there is such a tensor"), "{\"tooLarge\":true}");
    let who = trace.element_accesses(0, 0, 0).expect("there is such a tensor");
    assert!(who.contains("\"partial\":true"), "{who}");
}

/// Each chunk raises the launch number by 4096. Expected: malformed.
#[test]
fn launches_are_bounded_by_the_chunks_of_the_file() {
    let mut bytes = traced(&launch(1, 1), &|_| {})[..8].to_vec();
    for number in (0..10_000_u64).map(|chunk| chunk * 4096) {
        let mut payload = [0x80; 10];
        for (at, byte) in payload.iter_mut().enumerate().take(9) {
            *byte |= (number >> (7 * at)) as u8 & 0x7f;
        }
        payload[9] = 0;
        bytes.extend(b"PROG");
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(payload);
    }
    assert!(Trace::new(bytes).is_err());
}

#[test]
fn launches_over_the_size_limit_are_truncated() {
    let limits = Limits { programs: 1, value_bytes: 300, bytes: 1 << 20 };
    let trace = Trace::open(&written("values", 40, 1, limits)).expect("it is a trace");
    let programs = &trace.launches[0].programs;
    assert_eq!(programs.len(), 40);
    assert!(programs.iter().any(tilewright_trace::Program::is_cut_short));
    // All accesses are recorded.
    assert!(programs.iter().all(|program| trace.events(&trace.launches[0], program).len() == 2));
    let limits = Limits { programs: 1, value_bytes: 0, bytes: 400 };
    let trace = Trace::open(&written("bytes", 400, 1, limits)).expect("it is a trace");
    assert!(trace.launches[0].programs.len() < 400);
}

#[test]
fn simulated_launches_keep_their_device_and_code() {
    let path = path("simulated");
    let recorder = Recorder::create(&path).expect("the folder is there");
    let fact = |role| value(role, "int32", 4, &[]);
    let wait = op("wait", Kind::Sync, vec![fact(Role::Warp), fact(Role::Phase), fact(Role::Completes)]);
    let launch = Launch { ops: vec![wait], ..launch(1, 1) };
    let recording = Recording::begin(&recorder, recorder.next_launch(), &launch, Limits::default());
    let simulation = Simulation { device: "sim:sm_90".into(), warps: 8, code: "{\"memory\":[]}".into() };
    recorder.simulation(0, &simulation);
    let mut batch = recording.batch();
    batch.begin(0);
    assert!(batch.event(0));
    for bits in [5, u64::from(u32::MAX), 1] {
        batch.uniform(bits);
    }
    batch.end_event(0);
    batch.end(0, true);
    drop(batch);
    recording.end(7, None);
    let trace = Trace::open(&path).expect("it was written");
    assert_eq!(trace.simulation(0), Some(&simulation));
    let about = trace.launch(0).expect("there is a launch");
    assert!(about.contains(r#""device":"sim:sm_90","warps":8"#), "{about}");
    assert!(about.contains(r#""kind":"sync""#), "{about}");
    // The phase before the first one is -1.
    let events = trace.events_of(0, 0).expect("there is a program");
    assert!(events.contains(r#"[0,0,["uniform",5],["uniform",-1],["uniform",1]]"#), "{events}");
}
