//! Compares the fragment map with the formulas of the PTX ISA.
//!
//! `group` is `%laneid >> 2`, `thread` is `%laneid % 4`, and `i` counts the elements of a lane.

use super::*;

fn check(
    (operand, element, rows, columns): (MatrixRole, Element, usize, usize),
    registers: usize,
    formula: impl Fn(usize, usize, usize) -> (usize, usize),
) {
    let fragment = Fragment { operand, rows, columns, element };
    assert_eq!(fragment.registers(), registers, "{fragment:?}");
    let packed = fragment.elements_per_register();
    let mut seen = vec![false; rows * columns];
    for lane in 0..LANES {
        for i in 0..registers * packed {
            let (row, column) = formula(lane >> 2, lane % 4, i);
            let place = fragment.position(lane, i / packed, i % packed);
            assert_eq!(place, (row, column), "{fragment:?} lane {lane} element {i}");
            assert!(!std::mem::replace(&mut seen[row * columns + column], true), "held twice: {place:?}");
        }
    }
    assert!(seen.into_iter().all(|held| held), "{fragment:?} does not hold every element");
}

#[test]
fn f64_m8n8k4() {
    check((MatrixRole::A, Element::F64, 8, 4), 1, |group, thread, _| (group, thread));
    check((MatrixRole::B, Element::F64, 4, 8), 1, |group, thread, _| (thread, group));
    check((MatrixRole::Accumulator, Element::F64, 8, 8), 2, |group, thread, i| (group, thread * 2 + (i & 1)));
}

#[test]
fn f64_m16n8() {
    check((MatrixRole::A, Element::F64, 16, 4), 2, |group, thread, i| {
        (if i == 0 { group } else { group + 8 }, thread)
    });
    check((MatrixRole::A, Element::F64, 16, 8), 4, |group, thread, i| {
        (if i == 0 || i == 2 { group } else { group + 8 }, if i < 2 { thread } else { thread + 4 })
    });
    check((MatrixRole::A, Element::F64, 16, 16), 8, |group, thread, i| {
        if i % 2 == 0 { (group, i * 2 + thread) } else { (group + 8, i * 2 - 2 + thread) }
    });
    check((MatrixRole::B, Element::F64, 4, 8), 1, |group, thread, _| (thread, group));
    check((MatrixRole::B, Element::F64, 8, 8), 2, |group, thread, i| {
        (if i == 0 { thread } else { thread + 4 }, group)
    });
    check((MatrixRole::B, Element::F64, 16, 8), 4, |group, thread, i| (thread + i * 4, group));
    check((MatrixRole::Accumulator, Element::F64, 16, 8), 4, |group, thread, i| {
        (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
    });
}

#[test]
fn half_m16n8k8() {
    for element in [Element::F16, Element::Bf16] {
        check((MatrixRole::A, element, 16, 8), 2, |group, thread, i| {
            (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
        });
        check((MatrixRole::B, element, 8, 8), 1, |group, thread, i| (thread * 2 + i, group));
    }
    for (element, registers) in [(Element::F32, 4), (Element::F16, 2)] {
        check((MatrixRole::Accumulator, element, 16, 8), registers, |group, thread, i| {
            (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
        });
    }
}

#[test]
fn half_m16n8k16() {
    for element in [Element::F16, Element::Bf16] {
        check((MatrixRole::A, element, 16, 16), 4, |group, thread, i| {
            let upper = i < 2 || (4..6).contains(&i);
            let column = thread * 2 + (i & 1);
            (if upper { group } else { group + 8 }, if i < 4 { column } else { column + 8 })
        });
        check((MatrixRole::B, element, 16, 8), 2, |group, thread, i| {
            let row = thread * 2 + (i & 1);
            (if i < 2 { row } else { row + 8 }, group)
        });
    }
}

#[test]
fn tf32() {
    check((MatrixRole::A, Element::Tf32, 16, 4), 2, |group, thread, i| {
        (if i == 0 { group } else { group + 8 }, thread)
    });
    check((MatrixRole::B, Element::Tf32, 4, 8), 1, |group, thread, _| (thread, group));
    check((MatrixRole::A, Element::Tf32, 16, 8), 4, |group, thread, i| {
        (if i == 0 || i == 2 { group } else { group + 8 }, if i < 2 { thread } else { thread + 4 })
    });
    check((MatrixRole::B, Element::Tf32, 8, 8), 2, |group, thread, i| {
        (if i == 0 { thread } else { thread + 4 }, group)
    });
}

#[test]
fn bytes() {
    for element in [Element::S8, Element::U8] {
        check((MatrixRole::A, element, 8, 16), 1, |group, thread, i| (group, thread * 4 + i));
        check((MatrixRole::B, element, 16, 8), 1, |group, thread, i| (thread * 4 + i, group));
    }
    for element in [Element::S8, Element::U8, Element::E4m3, Element::E5m2] {
        check((MatrixRole::A, element, 16, 16), 2, |group, thread, i| {
            (if i < 4 { group } else { group + 8 }, thread * 4 + (i & 3))
        });
        check((MatrixRole::B, element, 16, 8), 1, |group, thread, i| (thread * 4 + i, group));
        check((MatrixRole::A, element, 16, 32), 4, |group, thread, i| {
            let upper = i < 4 || (8..12).contains(&i);
            let column = thread * 4 + (i & 3);
            (if upper { group } else { group + 8 }, if i < 8 { column } else { column + 16 })
        });
        check((MatrixRole::B, element, 32, 8), 2, |group, thread, i| {
            let row = thread * 4 + (i & 3);
            (if i < 4 { row } else { row + 16 }, group)
        });
    }
    check((MatrixRole::Accumulator, Element::S32, 8, 8), 2, |group, thread, i| (group, thread * 2 + i));
    check((MatrixRole::Accumulator, Element::S32, 16, 8), 4, |group, thread, i| {
        (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1))
    });
}

#[test]
fn nibbles() {
    for element in [Element::S4, Element::U4] {
        check((MatrixRole::A, element, 8, 32), 1, |group, thread, i| (group, thread * 8 + i));
        check((MatrixRole::B, element, 32, 8), 1, |group, thread, i| (thread * 8 + i, group));
        check((MatrixRole::A, element, 16, 32), 2, |group, thread, i| {
            (if i < 8 { group } else { group + 8 }, thread * 8 + (i & 7))
        });
        check((MatrixRole::A, element, 16, 64), 4, |group, thread, i| {
            let upper = i < 8 || (16..24).contains(&i);
            let column = thread * 8 + (i & 7);
            (if upper { group } else { group + 8 }, if i < 16 { column } else { column + 32 })
        });
        check((MatrixRole::B, element, 64, 8), 2, |group, thread, i| {
            let row = thread * 8 + (i & 7);
            (if i < 8 { row } else { row + 32 }, group)
        });
    }
}

#[test]
fn single_bits() {
    check((MatrixRole::A, Element::B1, 8, 128), 1, |group, thread, i| (group, thread * 32 + i));
    check((MatrixRole::B, Element::B1, 128, 8), 1, |group, thread, i| (thread * 32 + i, group));
    check((MatrixRole::A, Element::B1, 16, 128), 2, |group, thread, i| {
        (if i < 32 { group } else { group + 8 }, thread * 32 + (i & 31))
    });
    check((MatrixRole::A, Element::B1, 16, 256), 4, |group, thread, i| {
        let upper = i < 32 || (64..96).contains(&i);
        let column = thread * 32 + (i & 31);
        (if upper { group } else { group + 8 }, if i < 64 { column } else { column + 128 })
    });
    check((MatrixRole::B, Element::B1, 256, 8), 2, |group, thread, i| {
        let row = thread * 32 + (i & 31);
        (if i < 32 { row } else { row + 128 }, group)
    });
}

#[test]
fn warpgroup_accumulators() {
    // "Register fragments … for wgmma.mma_async.m64nNk…", matrix D, for the first 16 rows.
    for columns in [8, 64, 256] {
        for (element, registers) in [(Element::F32, columns / 2), (Element::F16, columns / 4)] {
            check((MatrixRole::Accumulator, element, 16, columns), registers, |group, thread, i| {
                (group + 8 * ((i / 2) % 2), 8 * (i / 4) + 2 * thread + i % 2)
            });
        }
    }
}

#[test]
fn scattering_inverts_gathering() {
    let fragment = Fragment { operand: MatrixRole::A, rows: 16, columns: 64, element: Element::S4 };
    let mut matrix = Matrix::new(16, 64);
    for (index, element) in matrix.elements.iter_mut().enumerate() {
        *element = (index as i64 * 7) % 16 - 8;
    }
    let registers = fragment.scatter(&matrix, |_, value| value as u64);
    assert_eq!(fragment.gather(&registers, Element::integer), matrix);
}
