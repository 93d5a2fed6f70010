//! Tests the machine code of operations on memory: loads, stores, gathers and scatters.

use tilewright_native::{
    Builder, Place,
    ir::{Binary, IntBinary, Lane},
};

use crate::harness::{LANES, Random, call, compiled, low, read, targets, write};

/// A page between two inaccessible pages.
struct Guarded {
    start: *mut u8,
    page: usize,
}

impl Guarded {
    fn new() -> Self {
        // SAFETY: a new mapping overlaps nothing. Only its first and last page become inaccessible.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
            let start = libc::mmap(std::ptr::null_mut(), 3 * page, rights, flags, -1, 0);
            assert!(start != libc::MAP_FAILED);
            let start = start.cast::<u8>();
            assert_eq!(libc::mprotect(start.cast(), page, libc::PROT_NONE), 0);
            assert_eq!(libc::mprotect(start.add(2 * page).cast(), page, libc::PROT_NONE), 0);
            Self { start: start.add(page), page }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the page can be accessed, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.page) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `new` created this mapping.
        unsafe { libc::munmap(self.start.sub(self.page).cast(), 3 * self.page) };
    }
}

#[test]
fn accesses_of_the_last_lanes_touch_nothing_else() {
    let (mut from, mut to) = (Guarded::new(), Guarded::new());
    let page = from.page;
    for target in targets() {
        let lanes = target.lanes();
        for lane in LANES {
            let bytes = lane.bytes();
            for is_masked in [false, true] {
                let mut builder = Builder::new(lanes);
                let argument = builder.argument();
                let [source, target_base, bits] = [0, 8, 16].map(|at| builder.int_load(8, argument, at));
                let mask = is_masked.then(|| builder.mask_of_bits(bits));
                let place = |base| Place { base, index: None, offset: 0 };
                let value = builder.load(lane, place(source), mask);
                builder.store(place(target_base), value, mask, false);
                let whole = builder.int_load(8, argument, 24);
                builder.store(place(whole), value, None, false);
                let zero = builder.int(0);
                builder.ret(zero);
                let executable = compiled(&builder.finish(), target);
                for count in if is_masked { 0..=lanes } else { lanes..=lanes } {
                    // Lanes at the end of the page, then at its start.
                    for is_end in [true, false] {
                        let offset = if is_end { page - count * bytes } else { 0 };
                        let skipped = if is_end { 0 } else { lanes - count };
                        for (index, byte) in from.bytes().iter_mut().enumerate() {
                            *byte = (index * 7 + 1) as u8;
                        }
                        to.bytes().fill(0xee);
                        let mut whole = vec![0xeeu8; lanes * bytes];
                        let mask = ((1u64 << count) - 1) << skipped;
                        let address =
                            |start: *mut u8| start as u64 + offset as u64 - (skipped * bytes) as u64;
                        let mut arguments =
                            [address(from.start), address(to.start), mask, whole.as_mut_ptr() as u64];
                        call(&executable, &mut arguments);
                        let expected = from.bytes()[offset..offset + count * bytes].to_vec();
                        let what = format!("{lane:?}, {count} lanes with {:?}", target.isa());
                        assert_eq!(to.bytes()[offset..offset + count * bytes], expected, "{what}");
                        let others = to.bytes().iter().filter(|&&byte| byte == 0xee).count();
                        let changed = expected.iter().filter(|&&byte| byte != 0xee).count();
                        assert_eq!(others, page - changed, "{what}: other bytes changed");
                        let mut loaded = vec![0u8; lanes * bytes];
                        loaded[skipped * bytes..(skipped + count) * bytes].copy_from_slice(&expected);
                        assert_eq!(whole, loaded, "{what}: lanes that are off are 0");
                    }
                }
            }
        }
    }
}

#[test]
fn splat_loads_and_streaming_stores() {
    for target in targets() {
        let lanes = target.lanes();
        for lane in LANES {
            let mut page = Guarded::new();
            let mut builder = Builder::new(lanes);
            let argument = builder.argument();
            let [source, to] = [0, 8].map(|at| builder.int_load(8, argument, at));
            let place = |base| Place { base, index: None, offset: 0 };
            let first = builder.load_splat(lane, place(source));
            let constant = builder.constant(lane, 1);
            let first = builder.binary(Binary::Xor, constant, first);
            builder.prefetch(place(source));
            builder.store(place(to), first, None, true);
            builder.ret(argument);
            let executable = compiled(&builder.finish(), target);
            let size = page.page;
            page.bytes()[size - lane.bytes()..].fill(0x42);
            let source = page.start as u64 + (size - lane.bytes()) as u64;
            call(&executable, &mut [source, page.start as u64]);
            let expected = write(lane, &vec![low(lane, 0x4242_4242_4242_4242) ^ 1; lanes]);
            assert_eq!(page.bytes()[..expected.len()], expected, "{lane:?} with {:?}", target.isa());
        }
    }
}

#[test]
fn gathers_and_scatters() {
    for target in targets() {
        let lanes = target.lanes();
        for lane in [Lane::I32, Lane::I64, Lane::F32, Lane::F64] {
            let mut builder = Builder::new(lanes);
            let argument = builder.argument();
            let [source, to, offsets, bits] = [0, 8, 16, 24].map(|at| builder.int_load(8, argument, at));
            let place = |base| Place { base, index: None, offset: 0 };
            let offsets = builder.load(Lane::I64, place(offsets), None);
            let mask = builder.mask_of_bits(bits);
            let value = builder.gather(lane, source, offsets, mask);
            builder.scatter(to, offsets, value, mask);
            let whole = builder.int_load(8, argument, 32);
            builder.store(place(whole), value, None, false);
            // The registers of the mask and the offsets must not be overwritten.
            let bits = builder.mask_bits(mask);
            let first = builder.first(offsets);
            let sum = builder.int_binary(IntBinary::Add, bits, first);
            builder.ret(sum);
            let executable = compiled(&builder.finish(), target);
            let mut random = Random(23);
            let page = Guarded::new();
            for _ in 0..50 {
                let memory: Vec<u64> = (0..64).map(|_| random.next()).collect();
                let mut stored = vec![0u64; 64];
                let mask = random.next() & ((1 << lanes) - 1);
                // A masked-off lane would fault. Other lanes may have equal offsets.
                let offsets: Vec<u64> = (0..lanes)
                    .map(|lane| {
                        if mask >> lane & 1 == 1 {
                            random.next() % 40 * 8
                        } else {
                            (page.start as u64 + page.page as u64).wrapping_sub(memory.as_ptr() as u64)
                        }
                    })
                    .collect();
                let mut whole = vec![0xffu8; lanes * lane.bytes()];
                let mut arguments = [
                    memory.as_ptr() as u64,
                    stored.as_mut_ptr() as u64,
                    offsets.as_ptr() as u64,
                    mask,
                    whole.as_mut_ptr() as u64,
                ];
                let result = call(&executable, &mut arguments);
                assert_eq!(result, mask.wrapping_add(offsets[0]));
                let mut expected_stored = vec![0u64; 64];
                let mut expected = Vec::new();
                for index in 0..lanes {
                    let is_on = mask >> index & 1 == 1;
                    let value = if is_on { low(lane, memory[offsets[index] as usize / 8]) } else { 0 };
                    expected.push(value);
                    if is_on {
                        expected_stored[offsets[index] as usize / 8] = value;
                    }
                }
                assert_eq!(read(lane, &whole), expected, "{lane:?} with {:?}", target.isa());
                assert_eq!(stored, expected_stored, "{lane:?} with {:?}", target.isa());
            }
        }
    }
}

#[test]
fn scatters_write_the_last_lane_of_an_address() {
    for target in targets() {
        let lanes = target.lanes();
        let mut builder = Builder::new(lanes);
        let argument = builder.argument();
        let offsets = builder.constant(Lane::I64, 16);
        let value = builder.iota(Lane::I32);
        let mask = builder.mask(true);
        builder.scatter(argument, offsets, value, mask);
        builder.ret(argument);
        let executable = compiled(&builder.finish(), target);
        let mut arguments = [0; 4];
        call(&executable, &mut arguments);
        assert_eq!(arguments, [0, 0, lanes as u64 - 1, 0]);
    }
}

#[test]
fn stores_do_not_pass_loads_that_wait_for_their_use() {
    for target in targets() {
        let mut builder = Builder::new(target.lanes());
        let argument = builder.argument();
        let place = |offset| Place { base: argument, index: None, offset };
        let x = builder.load(Lane::I32, place(0), None);
        let y = builder.load(Lane::I32, place(256), None);
        let splat = builder.load_splat(Lane::I32, place(0));
        builder.store(place(0), y, None, false);
        let sum = builder.binary(Binary::Add, x, splat);
        builder.store(place(256), sum, None, false);
        builder.ret(argument);
        let executable = compiled(&builder.finish(), target);
        let mut memory: Vec<u64> = vec![0x0000_0002_0000_0001; 128];
        memory[32..].fill(7);
        call(&executable, &mut memory);
        assert_eq!(memory[0], 7);
        assert_eq!(memory[32], 0x0000_0003_0000_0002);
    }
}
