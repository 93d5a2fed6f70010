//! Tests copies of gathered rows (`.tile::gather4`, `.tile::scatter4`), with and without mistakes.

mod support;

use support::run;
use tilewright_sim::{FaultKind, OutOfBoundsFill, SimTarget, Simulator, Swizzle, TensorDataType, TensorMap};

fn map(address: u64, box_extents: [u32; 2], swizzle: Swizzle) -> [u8; 128] {
    let map = TensorMap {
        data_type: TensorDataType::U32,
        address,
        extents: vec![32, 6],
        strides: vec![128],
        box_extents: box_extents.to_vec(),
        element_strides: vec![1; 2],
        swizzle,
        fill: OutOfBoundsFill::Zero,
        pixels: None,
    };
    map.encode().expect("it is a map")
}

/// Returns code that moves four row indices to registers. The second lane replaces them by the
/// other four.
fn numbers(rows: [i32; 8]) -> String {
    let all = rows.iter().enumerate().map(|(place, row)| {
        let guard = if place < 4 { "" } else { "@%p4 " };
        format!("    {guard}mov.b32 %r{}, {row};\n", 10 + place % 4)
    });
    "    setp.eq.u32 %p4, %r1, 1;\n".to_owned() + &all.collect::<String>()
}

/// Returns a body in which two lanes load four rows each from a column on. All threads copy
/// `row_bytes` bytes of each row out.
fn gather(rows: [i32; 8], column: i32, row_bytes: u32, expected_bytes: u32) -> String {
    let moves = numbers(rows);
    format!(
        "
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {expected_bytes};
    bar.warp.sync -1;
{moves}    mad.lo.u32 %r14, %r1, {part}, %r2;
    setp.lt.u32 %p5, %r1, 2;
    mov.b32 %r15, {column};
    @%p5 cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%r14+1024], [%rd3, {{%r15, %r10, %r11, %r12, %r13}}], [%r2];
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
    @!%p2 bra WAIT;
    shl.b32 %r5, %r1, 2;
LOOP:
    setp.ge.u32 %p3, %r5, {all};
    @%p3 bra DONE;
    add.u32 %r6, %r2, %r5;
    ld.shared.b32 %r7, [%r6+1024];
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd4, %rd2, %rd4;
    st.global.b32 [%rd4], %r7;
    add.u32 %r5, %r5, 128;
    bra LOOP;
DONE:
",
        part = 4 * row_bytes,
        all = 8 * row_bytes,
    )
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

#[test]
fn rows_come_by_number_and_are_swizzled_by_address() {
    let input: Vec<u8> = (0..6 * 32_u32).flat_map(|index| (index + 1).to_le_bytes()).collect();
    let rows = [5, 0, 3, 3, -1, 2, 6, i32::MAX];
    for (swizzle, columns, lines) in [
        (Swizzle::None, 8_usize, 1),
        (Swizzle::Bytes32, 8, 2),
        (Swizzle::Bytes64, 16, 4),
        (Swizzle::Bytes128, 32, 8),
    ] {
        for column in [0, 12, -4] {
            let map = map(input.as_ptr() as u64, [columns as u32, 1], swizzle);
            let row_bytes = columns as u32 * 4;
            let mut output = vec![0xee; 32 * columns];
            run(&gather(rows, column, row_bytes, 8 * row_bytes), 32, &input, &mut output, &map).unwrap();
            let found = words(&output);
            for (line, row) in rows.into_iter().enumerate() {
                for index in 0..columns {
                    let x = column + index as i32;
                    let inside = (0..6).contains(&row) && (0..32).contains(&x);
                    let expected = if inside { (row * 32 + x + 1) as u32 } else { 0 };
                    let linear = (line * columns + index) * 4;
                    let chunk = (linear / 16) ^ (linear / 128 % lines);
                    assert_eq!(found[chunk * 4 + index % 4], expected, "{swizzle:?} {row}, {x}");
                }
            }
        }
    }
}

#[test]
fn invalid_row_loads_are_found() {
    let input = vec![1; 6 * 128];
    let found = |body: &str, box_extents: [u32; 2]| {
        let mut output = vec![0; 1024];
        let map = map(input.as_ptr() as u64, box_extents, Swizzle::None);
        run(body, 32, &input, &mut output, &map).expect_err("the body is wrong")
    };
    let right = gather([0; 8], 0, 128, 1024);
    // The barrier expects too many bytes, then too few.
    let kind = found(&gather([0; 8], 0, 128, 2048), [32, 1]);
    assert!(matches!(kind, FaultKind::Deadlock { .. }), "{kind:?}");
    let kind = found(&gather([0; 8], 0, 128, 512), [32, 1]);
    assert!(!matches!(kind, FaultKind::Unsupported(_)), "{kind:?}");
    // The loads do not wait for the phase.
    let kind = found(&right.replace("@!%p2 bra WAIT;", "@!%p2 bra NEXT;\nNEXT:"), [32, 1]);
    assert!(matches!(kind, FaultKind::Race { .. }), "{kind:?}");
    // The box of the map has several rows.
    let kind = found(&right, [32, 4]);
    assert!(matches!(&kind, FaultKind::Illegal(text) if text.contains("a box of one row")), "{kind:?}");
}

/// Returns a body in which threads write 8 rows of 32 words, and two lanes store four rows each.
fn scatter(rows: [i32; 8], fence: &str) -> String {
    let moves = numbers(rows);
    format!(
        "
    shl.b32 %r5, %r1, 2;
    add.u32 %r6, %r2, %r5;
    mov.b32 %r7, 0;
LOOP:
    mad.lo.u32 %r8, %r7, 32, %r1;
    add.u32 %r8, %r8, 1;
    st.shared.b32 [%r6], %r8;
    add.u32 %r6, %r6, 128;
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p1, %r7, 8;
    @%p1 bra LOOP;
    {fence}
    bar.sync 0;
{moves}    mad.lo.u32 %r14, %r1, 512, %r2;
    setp.lt.u32 %p5, %r1, 2;
    mov.b32 %r15, 0;
    @%p5 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd3, {{%r15, %r10, %r11, %r12, %r13}}], [%r14];
    @%p5 cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"
    )
}

#[test]
fn rows_are_stored_by_number() {
    let rows = [4, 0, 6, 2, 100, 5, i32::MAX, 1];
    let mut output = vec![0; 6 * 128];
    let map = map(output.as_ptr() as u64, [32, 1], Swizzle::None);
    run(&scatter(rows, "fence.proxy.async.shared::cta;"), 32, &[], &mut output, &map).unwrap();
    for (row, line) in words(&output).chunks(32).enumerate() {
        let from = rows.iter().position(|number| *number == row as i32);
        for (column, word) in line.iter().enumerate() {
            let expected = from.map_or(0, |from| from * 32 + column + 1);
            assert_eq!(*word, expected as u32, "{row}, {column}");
        }
    }
    let mut wrong =
        |rows, fence| run(&scatter(rows, fence), 32, &[], &mut output, &map).expect_err("the body is wrong");
    let kind = wrong(rows, "");
    assert!(matches!(kind, FaultKind::MissingProxyFence { .. }), "{kind:?}");
    let kind = wrong([0, 1, 2, 3, 4, 5, -1, 6], "fence.proxy.async.shared::cta;");
    assert!(matches!(&kind, FaultKind::Illegal(text) if text.contains("coordinate -1")), "{kind:?}");
}

#[test]
fn targets_that_have_no_such_copies_are_refused() {
    let text = |target: &str, version: &str| {
        format!(
            ".version {version}\n.target {target}\n.address_size 64\n.visible .entry kernel(.param .u64 map)\n{{\n    .reg .b32 %r<8>;\n\
             \x20   .reg .b64 %rd<2>;\n    ld.param.u64 %rd1, [map];\n    mov.b32 %r1, 0;\n    cp.async.bulk.tensor.2d.global.shared::cta\
             .tile::scatter4.bulk_group [%rd1, {{%r1, %r1, %r1, %r1, %r1}}], [%r1];\n    ret;\n}}\n"
        )
    };
    let loads = |target: &str, version: &str| {
        Simulator::new(SimTarget::new(target).expect("a target")).load(&text(target, version)).map(|_| ())
    };
    loads("sm_100a", "8.6").expect("it is there");
    for (target, version) in [("sm_90a", "8.6"), ("sm_100", "8.6"), ("sm_120a", "8.8"), ("sm_100f", "8.8")] {
        assert_eq!(loads(target, version).is_ok(), target == "sm_100f", "{target}");
    }
}
