//! Compares multiplications of a warpgroup with a loop over integers.

use super::*;
use crate::registers::LANES;

fn values(element: Element, rows: usize, columns: usize, seed: i64) -> Matrix<i64> {
    let mut matrix = Matrix::new(rows, columns);
    let low = i64::from(!matches!(element, Element::U8 | Element::B1)) * -3;
    for (index, value) in matrix.elements.iter_mut().enumerate() {
        let noise = ((index as i64 * 2_654_435_761 + seed) >> 9).rem_euclid(7);
        *value = if element == Element::B1 { noise & 1 } else { noise + low };
    }
    matrix
}

fn typed(element: Element, matrix: &Matrix<i64>) -> Values {
    if element.is_integer() {
        return Values::Integers(matrix.clone());
    }
    let elements = matrix.elements.iter().map(|&value| value as f64).collect();
    Values::Floats(Matrix { rows: matrix.rows, columns: matrix.columns, elements })
}

#[test]
fn every_type_and_some_widths() {
    use Element::{B1, Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let types = [
        (F16, F16, F16),
        (F16, F16, F32),
        (Bf16, Bf16, F32),
        (Tf32, Tf32, F32),
        (E4m3, E5m2, F32),
        (E5m2, E5m2, F16),
        (S8, U8, S32),
        (B1, B1, S32),
    ];
    for (a_type, b_type, d_type) in types {
        for n in [8, 24, 64, 256] {
            for (negates_a, accumulates) in [(false, true), (true, true), (false, false)] {
                let product =
                    if a_type == B1 { IntegerProduct::AndPopcount } else { IntegerProduct::Wrapping };
                let negates_a = negates_a && !a_type.is_integer();
                let wgmma = Wgmma {
                    n,
                    a: a_type,
                    b: b_type,
                    d: d_type,
                    negates_a,
                    negates_b: false,
                    accumulates,
                    product,
                };
                assert!(wgmma.exists(), "{wgmma:?}");
                let a = values(a_type, WARP_ROWS, wgmma.k(), 1);
                let b = values(b_type, n, wgmma.k(), 2);
                let before = values(S8, WARP_ROWS, n, 3);
                let encode = |element: Element, value: i64| {
                    if element.is_integer() { value as u64 } else { element.round(value as f64) }
                };
                let d = wgmma.d_fragment().scatter(&before, encode);
                let d = wgmma.execute(&typed(a_type, &a), &typed(b_type, &b), &d);
                let got = wgmma.d_fragment().gather(&d, Element::value);
                for row in 0..WARP_ROWS {
                    for column in 0..n {
                        let products = a.row(row).iter().zip(b.row(column)).map(|(x, y)| x * y);
                        let sum: i64 = products.sum::<i64>() * if negates_a { -1 } else { 1 };
                        let sum = sum + if accumulates { before[(row, column)] } else { 0 };
                        assert_eq!(got[(row, column)], sum as f64, "{wgmma:?} at {row}, {column}");
                    }
                }
            }
        }
    }
}

#[test]
fn widths_that_the_isa_lacks_do_not_exist() {
    let wgmma = |n, a, d| Wgmma {
        n,
        a,
        b: a,
        d,
        negates_a: false,
        negates_b: false,
        accumulates: true,
        product: IntegerProduct::Wrapping,
    };
    assert!(wgmma(248, Element::F16, Element::F32).exists());
    assert!(!wgmma(248, Element::S8, Element::S32).exists());
    assert!(!wgmma(12, Element::F16, Element::F32).exists());
    assert!(!wgmma(264, Element::F16, Element::F32).exists());
    assert!(!wgmma(64, Element::Bf16, Element::F16).exists());
    assert!(!wgmma(64, Element::S4, Element::S32).exists());
}

#[test]
fn registers_of_a_and_d_are_as_many_as_the_isa_says() {
    // By the ISA: "A vector expression containing four .f16x2 registers" and "N/2 .f32 registers",
    // "N/4 .f16x2 registers".
    let mut wgmma = Wgmma {
        n: 96,
        a: Element::F16,
        b: Element::F16,
        d: Element::F32,
        negates_a: false,
        negates_b: false,
        accumulates: true,
        product: IntegerProduct::Wrapping,
    };
    assert_eq!((wgmma.a_fragment().registers(), wgmma.d_fragment().registers()), (4, 48));
    wgmma.d = Element::F16;
    assert_eq!(wgmma.d_fragment().registers(), 24);
    wgmma.a = Element::Tf32;
    assert_eq!(wgmma.a_fragment().registers() * LANES, WARP_ROWS * wgmma.k());
}
