//! Tests the memory module on inputs that are small enough for Miri: `cargo +nightly miri test -p
//! tilewright-cpu memory`.

use tilewright_ir::{AtomicKind, Dtype};

use super::{
    AccessError, AccessErrorKind, Axis, Region, RunReader, RunWriter, advise_large_pages, compare_exchange,
    fence_stores, gather, in_padding, load_block, read_modify_write, rearrange, scatter, store_block,
    store_run,
};

fn places(size: usize, axes: &[Axis]) -> Vec<(i64, usize)> {
    axes.iter().fold(vec![(0, 0)], |places, axis| {
        let along = |(memory, tile): (i64, usize)| {
            (0..axis.count).map(move |i| (memory + i as i64 * axis.stride, tile + i * axis.tile * size))
        };
        places.into_iter().flat_map(along).collect()
    })
}

fn axis(count: usize, stride: i64, tile: usize) -> Axis {
    Axis { count, stride, tile }
}

/// Compares a load and a store of a block with copies of single elements.
fn check(size: usize, start: usize, memory: usize, tile: usize, axes: &[Axis]) {
    let mut user: Vec<u8> = (0..memory).map(|i| (i * 37 + 11) as u8).collect();
    let before = user.clone();
    let region = Region::of(&mut user);
    let address = region.address() + start as u64;
    let mut found = vec![0xee; tile * size];
    let mut expect = found.clone();
    load_block(&region, size, address, axes, &mut found).expect("the block is inside");
    for (at, to) in places(size, axes) {
        let from = (start as i64 + at) as usize;
        expect[to..to + size].copy_from_slice(&before[from..from + size]);
    }
    assert_eq!(found, expect, "load of {size} bytes, {axes:?}");

    let values: Vec<u8> = (0..tile * size).map(|i| (i * 101 + 3) as u8).collect();
    let mut expect = before.clone();
    for (at, from) in places(size, axes) {
        let to = (start as i64 + at) as usize;
        expect[to..to + size].copy_from_slice(&values[from..from + size]);
    }
    store_block(&region, size, address, axes, &values, false).expect("the block is inside");
    // Along an axis with stride 0, any element may remain.
    if axes.iter().all(|axis| axis.stride != 0) {
        assert_eq!(user, expect, "store of {size} bytes, {axes:?}");
    }
}

#[test]
fn blocks() {
    for size in [1, 2, 4, 8] {
        let bytes = size as i64;
        check(size, 1, 100, 4, &[]);
        check(size, 3, 400, 30, &[axis(30, bytes, 1)]);
        check(size, 0, 400, 30, &[axis(6, 5 * bytes, 5), axis(5, bytes, 1)]);
        check(size, 5, 800, 24, &[axis(6, 11 * bytes, 4), axis(4, bytes, 1)]);
        check(size, 5, 800, 24, &[axis(3, 16 * bytes, 8), axis(4, 3 * bytes, 2)]);
        check(size, 300, 400, 20, &[axis(20, -bytes - 1, 1)]);
        check(size, 7, 500, 60, &[axis(3, 0, 20), axis(4, bytes * 5, 5), axis(5, bytes, 1)]);
        check(size, 7, 500, 60, &[axis(12, bytes * 2, 5), axis(5, 0, 1)]);
        // Transposed blocks, mostly with extents that are not multiples of the side of the squares.
        check(size, 1, 4000, 20 * 19, &[axis(20, bytes, 19), axis(19, 21 * bytes + 1, 1)]);
        check(size, 1, 4000, 2 * 3 * 17, &[axis(2, bytes, 51), axis(3, 600, 17), axis(17, 33, 1)]);
        check(size, 0, 4000, 8 * 4, &[axis(8, bytes, 4), axis(4, 8 * bytes, 1)]);
        check(size, 3, 9000, 3 * 97, &[axis(3, 95 * bytes + 1, 97), axis(93, bytes, 1)]);
        check(size, 3, 9000, 32 * 35, &[axis(32, bytes, 35), axis(33, 33 * bytes, 1)]);
    }
}

#[test]
fn empty_blocks_touch_nothing() {
    let mut user = [0_u8; 4];
    let region = Region::of(&mut user);
    let axes = [axis(3, 4, 1), axis(0, 4, 1)];
    assert_eq!(load_block(&region, 4, 0, &axes, &mut []), Ok(()));
    assert_eq!(store_block(&region, 4, 0, &axes, &[], false), Ok(()));
    assert_eq!(gather(&[region], 4, &[], None, &mut []), Ok(()));
}

#[test]
fn blocks_outside_name_the_first_element() {
    let mut user = vec![7_u8; 100];
    let region = Region::of(&mut user);
    let base = region.address();
    let outside =
        |element, address| Err(AccessError { kind: AccessErrorKind::OutOfBounds, element, address });
    let mut tile = vec![1_u8; 4 * 64];
    // The region has room for 25 elements, one fewer than the block.
    let axes = [axis(26, 4, 1)];
    assert_eq!(load_block(&region, 4, base, &axes, &mut tile), outside(25, base + 100));
    assert_eq!(store_block(&region, 4, base, &axes, &tile, false), outside(25, base + 100));
    // The last byte of the last element is outside.
    assert_eq!(load_block(&region, 4, base + 1, &[axis(25, 4, 1)], &mut tile), outside(24, base + 97));
    // The error names the first element in the order of the axes, not the lowest address.
    let axes = [axis(4, -40, 8), axis(8, 4, 1)];
    assert_eq!(load_block(&region, 4, base + 60, &axes, &mut tile), outside(16, base - 20));
    // No element was written.
    assert!(tile.iter().all(|&byte| byte == 1));
    // The extent of the first block exceeds 64 bits, and the addresses of the second block wrap.
    let axes = [axis(1 << 40, i64::MAX / 2, 0)];
    assert!(load_block(&region, 4, base, &axes, &mut tile).is_err());
    assert_eq!(load_block(&region, 4, u64::MAX - 1, &[axis(4, 4, 1)], &mut tile), outside(0, u64::MAX - 1));
    assert!(user.iter().all(|&byte| byte == 7));
}

#[test]
#[should_panic(expected = "the block lies in the tile")]
fn blocks_outside_of_the_tile_panic() {
    let mut user = [0_u8; 64];
    let region = Region::of(&mut user);
    let _ = load_block(&region, 4, region.address(), &[axis(4, 4, 3)], &mut [0; 36]);
}

#[test]
fn gathers_and_scatters() {
    for size in [1, 2, 4, 8] {
        let mut user: Vec<u8> = (0..200).collect();
        let region = Region::of(&mut user);
        let base = region.address() as i64;
        let addresses = [base + 3, base + 192, base, base + 77, base + 500];
        let mask = [1, 1, 0, 1, 0];
        let mut found = vec![0xee; 5 * size];
        gather(&[region], size, &addresses, Some(&mask), &mut found).expect("the lane outside is off");
        for (index, start) in [(0, 3), (1, 192), (3, 77)] {
            let expect: Vec<u8> = (start..).take(size).collect();
            assert_eq!(&found[index * size..][..size], expect);
        }
        for index in [2, 4] {
            assert_eq!(found[index * size..][..size], vec![0xee; size]);
        }
        let all = gather(&[region], size, &addresses, None, &mut found);
        let expect =
            AccessError { kind: AccessErrorKind::OutOfBounds, element: 4, address: (base + 500) as u64 };
        assert_eq!(all, Err(expect));
        let values = vec![0xaa; 5 * size];
        assert_eq!(scatter(&[region], size, &addresses, None, &values), Err(expect));
        scatter(&[region], size, &addresses, Some(&mask), &values).expect("the lane outside is off");
        let written = |at: usize| [3, 192, 77].iter().any(|&start| (start..start + size).contains(&at));
        for (at, &byte) in user.iter().enumerate() {
            assert_eq!(byte, if written(at) { 0xaa } else { at as u8 });
        }
    }
}

#[test]
fn several_regions() {
    let (mut first, mut second) = ([1_u8; 16], [2_u8; 16]);
    let regions = [Region::of(&mut first), Region::of(&mut second)];
    let [a, b] = regions.map(|region| region.address() as i64);
    let mut found = [0; 12];
    gather(&regions, 4, &[b + 12, a, b], None, &mut found).expect("all are inside one of them");
    assert_eq!(found, [2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2]);
    let outside = gather(&regions, 4, &[a, b + 13], None, &mut found[..8]);
    assert_eq!(outside.map_err(|error| error.element), Err(1));
}

#[test]
fn atomics() {
    let mut user = [5_i32, -7, 100, 0];
    let bytes = bytemuck::cast_slice_mut(&mut user);
    let region = Region::of(bytes);
    let base = region.address() as i64;
    let addresses = [base, base + 4, base, base + 12];
    let values: [i32; 4] = [10, 1, i32::MAX, 9];
    let mut old = [0_i32; 4];
    let mut run = |op, dtype| {
        let values = bytemuck::cast_slice(&values);
        let old = bytemuck::cast_slice_mut(&mut old);
        read_modify_write(&[region], op, dtype, &addresses, Some(&[1, 1, 1, 0]), values, old)
            .expect("it is allowed");
    };
    run(AtomicKind::Add, Dtype::I32);
    run(AtomicKind::Max, Dtype::I32);
    assert_eq!(user, [i32::MAX, 1, 100, 0]);
    assert_eq!(old, [15_i32.wrapping_add(i32::MAX), -6, 10, 0]);
}

#[test]
fn atomics_of_floats() {
    let mut user = [1.5_f32, f32::NAN];
    let region = Region::of(bytemuck::cast_slice_mut(&mut user));
    let base = region.address() as i64;
    let values = [2.25_f32, 3.0];
    let mut old = [0_u8; 8];
    let values: &[u8] = bytemuck::cast_slice(&values);
    for op in [AtomicKind::Min, AtomicKind::Add] {
        read_modify_write(&[region], op, Dtype::F32, &[base, base + 4], None, values, &mut old)
            .expect("it is allowed");
    }
    assert_eq!(user, [3.75, 6.0]);

    let mut user = [half::f16::from_f32(1.0), half::f16::from_f32(-2.0)];
    let region = Region::of(bytemuck::cast_slice_mut(&mut user));
    let base = region.address() as i64;
    let value = half::f16::from_f32(0.5).to_le_bytes();
    read_modify_write(&[region], AtomicKind::Add, Dtype::F16, &[base + 2], None, &value, &mut old[..2])
        .expect("it is allowed");
    assert_eq!(user.map(half::f16::to_f32), [1.0, -1.5]);
}

#[test]
fn compare_and_exchange() {
    let mut user = [1_u64, 2];
    let region = Region::of(bytemuck::cast_slice_mut(&mut user));
    let base = region.address() as i64;
    let (expected, values, mut old) = ([1_u64, 7], [10_u64, 20], [0_u64; 2]);
    compare_exchange(
        &[region],
        8,
        &[base, base + 8],
        None,
        bytemuck::cast_slice(&expected),
        bytemuck::cast_slice(&values),
        bytemuck::cast_slice_mut(&mut old),
    )
    .expect("it is allowed");
    assert_eq!((user, old), ([10, 2], [1, 2]));
}

#[test]
fn atomics_must_be_aligned_and_inside() {
    let mut user = [0_u32; 2];
    let region = Region::of(bytemuck::cast_slice_mut(&mut user));
    let base = region.address() as i64;
    let mut old = [0_u8; 8];
    let mut run = |second| {
        read_modify_write(&[region], AtomicKind::Add, Dtype::I32, &[base, second], None, &[1; 8], &mut old)
            .map_err(|error| (error.kind, error.element))
    };
    assert_eq!(run(base + 2), Err((AccessErrorKind::Misaligned, 1)));
    assert_eq!(run(base + 8), Err((AccessErrorKind::OutOfBounds, 1)));
    assert_eq!(user, [0; 2]);
}

#[test]
fn atomics_of_threads_are_not_lost() {
    let mut user = [0_u8; 8];
    let region = Region::of(&mut user[..]);
    let base = region.address().next_multiple_of(4) as i64;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let one = 1.0_f32.to_le_bytes();
                    let mut old = [0; 4];
                    read_modify_write(&[region], AtomicKind::Add, Dtype::F32, &[base], None, &one, &mut old)
                        .expect("it is allowed");
                }
            });
        }
    });
    let mut sum = [0; 4];
    gather(&[region], 4, &[base], None, &mut sum).expect("it is inside");
    assert_eq!(f32::from_le_bytes(sum), 120.0);
}

#[test]
fn tiles_are_rearranged() {
    let from: Vec<u8> = (0..24).collect();
    let mut to = vec![0; 24];
    rearrange(2, &[axis(4, 2, 3), axis(3, 8, 1)], &mut to, &from, 0);
    let expect: Vec<u8> =
        (0..4).flat_map(|i| (0..3).flat_map(move |j| [j * 8 + i * 2, j * 8 + i * 2 + 1])).collect();
    assert_eq!(to, expect);
}

#[test]
#[should_panic(expected = "the block lies in the tile")]
fn rearranging_stays_in_the_tile() {
    rearrange(2, &[axis(4, 2, 1)], &mut [0; 8], &[0; 9], 2);
}

#[test]
fn shared_memory_is_not_written() {
    // Atomic operations need the alignment of their elements, so the memory consists of words.
    let words: Vec<u32> = (0..16).collect();
    let user: &[u8] = bytemuck::cast_slice(&words);
    let region = Region::read_only(user);
    let base = region.address();
    let mut tile = [0; 16];
    load_block(&region, 4, base, &[axis(4, 4, 1)], &mut tile).expect("reading is fine");
    assert_eq!(tile[..], user[..16]);
    let refused = |element, address| Err(AccessError { kind: AccessErrorKind::ReadOnly, element, address });
    assert_eq!(store_block(&region, 4, base, &[axis(4, 4, 1)], &tile, false), refused(0, base));
    assert_eq!(store_block(&region, 4, base, &[axis(0, 4, 1)], &tile, false), Ok(()));
    let addresses = [base as i64, base as i64 + 4];
    assert_eq!(scatter(&[region], 4, &addresses, Some(&[0, 1]), &tile[..8]), refused(1, base + 4));
    assert_eq!(scatter(&[region], 4, &addresses, Some(&[0, 0]), &tile[..8]), Ok(()));
    let mut old = [0; 8];
    let result =
        read_modify_write(&[region], AtomicKind::Add, Dtype::I32, &addresses, None, &tile[..8], &mut old);
    assert_eq!(result, refused(0, base));
    assert_eq!(words, (0..16).collect::<Vec<u32>>());
}

#[test]
fn runs_past_the_caches_are_the_same() {
    for offset in [0, 4, 64] {
        for length in [4, 64, 100, 1000] {
            let mut memory = vec![7_u8; 64 + 64 + 1000 + 64];
            let start = memory.as_ptr().align_offset(64) + offset;
            let tile: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut expect = memory.clone();
            expect[start..start + length].copy_from_slice(&tile);
            let region = Region::of(&mut memory);
            let address = region.address() + start as u64;
            store_run(&region, 4, address, &tile, true).expect("it is inside");
            fence_stores();
            assert_eq!(memory, expect, "{length} bytes at {offset}");
        }
    }
}

#[test]
fn blocks_bypass_the_caches() {
    for (offset, stride, columns) in
        [(0, 256, 16), (0, 256, 64), (1024, -256, 16), (4, 256, 16), (0, 260, 16), (0, 256, 17)]
    {
        let mut memory = vec![0_u8; 64 + 5 * 320];
        let start = memory.as_ptr().align_offset(64) + offset;
        let tile: Vec<u8> = (0..4 * 64 * 4).map(|i| (i * 101 + 3) as u8).collect();
        let axes = [axis(4, stride, 64), axis(columns, 4, 1)];
        let mut expect = memory.clone();
        for (at, from) in places(4, &axes) {
            let to = (start as i64 + at) as usize;
            expect[to..to + 4].copy_from_slice(&tile[from..from + 4]);
        }
        let region = Region::of(&mut memory);
        let address = region.address() + start as u64;
        store_block(&region, 4, address, &axes, &tile, true).expect("the block is inside");
        fence_stores();
        assert_eq!(memory, expect, "{columns} columns at {offset}, {stride} bytes apart");
    }
}

#[test]
fn runs_are_read_and_written_value_by_value() {
    for (offset, non_temporal) in [(0, false), (0, true), (4, false), (4, true), (64, true)] {
        let mut memory = vec![0_u8; 64 + 64 + 512];
        let start = memory.as_ptr().align_offset(64) + offset;
        let values: [[u32; 16]; 4] = std::array::from_fn(|i| std::array::from_fn(|j| (i * 16 + j) as u32));
        let mut expect = memory.clone();
        expect[start + 64..start + 320].copy_from_slice(bytemuck::cast_slice(&values));
        let region = Region::of(&mut memory);
        let address = region.address() + start as u64;
        let mut run = RunWriter::new(&region, 4, address, 512, non_temporal).expect("it is inside");
        let mut part = run.part::<[u32; 16], 4>(64);
        assert_eq!(part.non_temporal(), non_temporal && offset % 64 == 0);
        for (index, &value) in values.iter().enumerate() {
            if part.non_temporal() { part.stream(index, value) } else { part.write(index, value) }
        }
        fence_stores();
        let part = run.reader().part::<[u32; 16], 4>(64);
        assert_eq!(std::array::from_fn(|index| part.read(index)), values);
        assert_eq!(memory, expect);
    }
}

#[test]
#[should_panic(expected = "in the run")]
fn a_part_of_a_run_does_not_reach_over_its_end() {
    RunReader::of(&[0; 64]).part::<u32, 4>(52);
}

#[test]
#[cfg_attr(miri, ignore = "too large for it")]
fn advice_about_pages_changes_nothing() {
    let mut memory: Vec<u8> = (0..5 << 20).map(|index| (index % 251) as u8).collect();
    advise_large_pages(&Region::of(&mut memory));
    advise_large_pages(&Region::of(&mut memory[..100]));
    assert!(memory.iter().enumerate().all(|(index, &byte)| byte == (index % 251) as u8));
}

#[test]
fn padding_is_no_memory() {
    let bytes = [7_u8; 64];
    let region = Region::read_only(&bytes[..20]).with_padding(12);
    let base = region.address();
    assert_eq!((region.len(), region.padding(), region.is_writable()), (20, 12, false));
    assert!(!region.contains(base + 20, 1));
    for (offset, size, expected) in [
        (16, 4, false),
        (18, 4, true),
        (20, 4, true),
        (28, 4, true),
        (29, 4, false),
        (32, 1, false),
        (-4, 4, false),
        (-2, 8, false),
        (i64::MAX, 4, false),
    ] {
        let address = base.wrapping_add_signed(offset);
        assert_eq!(region.pads(address, size), expected, "{size} bytes at {offset}");
    }
    let regions = [region, Region::read_only(&bytes[24..28])];
    let addresses = [0, 20, 28, 40].map(|offset| base as i64 + offset);
    assert_eq!(in_padding(&regions, 4, &addresses, None), [0, 1, 1, 0]);
    assert_eq!(in_padding(&regions, 4, &addresses, Some(&[1, 0, 1, 1])), [0, 0, 1, 0]);
    // Memory of another region is not padding.
    assert_eq!(in_padding(&regions, 4, &[base as i64 + 24], None), [0]);
}
