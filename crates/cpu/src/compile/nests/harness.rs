//! Runs vector code in the interpreter and as machine code, and compares the results.
#![expect(unsafe_code, reason = "the functions access memory by address")]

use std::cell::RefCell;

use tilewright_fuzz::random::Random;
use tilewright_native::ir::{Function, Lane, Value};
use tilewright_native::{Builder, Executable, Isa, Place, Target, compile, interpret, verify};

const OPERAND_BYTES: usize = 16 * size_of::<u64>();

pub(super) struct Compiled {
    name: String,
    lanes: usize,
    from: Lane,
    to: Lane,
    function: Function,
    executable: Option<Executable>,
}

impl Compiled {
    /// Compiles `result[i] = emit(operand 0 [i], operand 1 [i], …)`.
    pub fn new(
        name: &str,
        target: Option<Target>,
        (from, to): (Lane, Lane),
        emit: impl for<'b> Fn(&'b RefCell<Builder>, [Value; 3]) -> Value,
    ) -> Self {
        let lanes = target.map_or(16, Target::lanes);
        let builder = RefCell::new(Builder::new(lanes));
        let base = builder.borrow().argument();
        let place = |index: usize| Place { offset: (index * OPERAND_BYTES) as i32, ..Place::at(base) };
        let operands = std::array::from_fn(|index| builder.borrow_mut().load(from, place(index), None));
        let result = emit(&builder, operands);
        builder.borrow_mut().store(place(3), result, None, false);
        let mut builder = builder.into_inner();
        let zero = builder.int(0);
        builder.ret(zero);
        let function = builder.finish();
        verify(&function).unwrap_or_else(|error| panic!("{name}: {error}"));
        let executable = target.map(|target| {
            let code = compile(&function, &target).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            Executable::new(&code).expect("the platform allows executable memory")
        });
        Self { name: name.into(), lanes, from, to, function, executable }
    }

    /// Runs the function on `operands` and compares the results with `expected`.
    pub fn check(&self, operands: &[[u64; 3]], expected: &[u64], is_same: impl Fn(u64, u64) -> bool) {
        let mut memory = vec![0_u64; 4 * OPERAND_BYTES / size_of::<u64>()];
        let (from, to) = (self.from.bytes(), self.to.bytes());
        for (chunk, expected) in operands.chunks(self.lanes).zip(expected.chunks(self.lanes)) {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
            for (lane, elements) in chunk.iter().enumerate() {
                for (index, element) in elements.iter().enumerate() {
                    bytes[index * OPERAND_BYTES + lane * from..][..from]
                        .copy_from_slice(&element.to_le_bytes()[..from]);
                }
            }
            let argument = memory.as_mut_ptr();
            // SAFETY: the function accesses only this memory. The target is the host, so the
            // processor has the instructions of the target.
            unsafe {
                match &self.executable {
                    Some(executable) => {
                        executable.call(argument);
                    }
                    None => {
                        interpret(&self.function, argument.expose_provenance() as u64, 10_000)
                            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                    }
                }
            }
            let bytes: &[u8] = bytemuck::cast_slice(&memory);
            for (lane, (elements, &expected)) in chunk.iter().zip(expected).enumerate() {
                let mut word = [0; 8];
                word[..to].copy_from_slice(&bytes[3 * OPERAND_BYTES + lane * to..][..to]);
                let found = u64::from_le_bytes(word);
                assert!(
                    is_same(found, expected),
                    "{} of {elements:#x?}: {found:#x}, expected {expected:#x}",
                    self.name
                );
            }
        }
    }
}

pub(super) fn is_same(lane: Lane, x: u64, y: u64) -> bool {
    x == y || (is_nan(lane, x) && is_nan(lane, y))
}

fn is_nan(lane: Lane, bits: u64) -> bool {
    match lane {
        Lane::F32 => f32::from_bits(bits as u32).is_nan(),
        Lane::F64 => f64::from_bits(bits).is_nan(),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => false,
    }
}

fn specials(lane: Lane) -> Vec<u64> {
    match lane {
        Lane::F32 => [
            0.0,
            1.0,
            0.5,
            2.0,
            3.0,
            1e-45,
            1e-40,
            1.17e-38,
            1e-10,
            0.3,
            0.55,
            0.927,
            0.93,
            4.0,
            4.1,
            88.0,
            88.8,
            103.9,
            104.5,
            128.0,
            150.0,
            448.0,
            464.0,
            465.0,
            57344.0,
            65504.0,
            65520.0,
            71476.0,
            1e9,
            3.4e38,
            f32::INFINITY,
            f32::NAN,
        ]
        .map(|x: f32| u64::from(x.to_bits()))
        .into(),
        Lane::F64 => [
            0.0,
            1.0,
            0.5,
            2.0,
            3.0,
            5e-324,
            1e-310,
            2.2e-308,
            1e-45,
            1e-40,
            1.17e-38,
            1e-10,
            0.3,
            0.55,
            4.0,
            19.9,
            20.1,
            127.5,
            128.0,
            255.5,
            32767.5,
            65535.9,
            709.0,
            709.8,
            745.0,
            746.1,
            1024.0,
            1075.0,
            2_147_483_647.5,
            2_147_483_648.5,
            4_294_967_295.5,
            4_294_967_296.0,
            3.402_823_5e38,
            3.402_823_6e38,
            1e300,
            f64::INFINITY,
            f64::NAN,
        ]
        .map(f64::to_bits)
        .into(),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 => {
            (0..8 * lane.bytes()).flat_map(|bit| [1 << bit, (1 << bit) - 1, (1 << bit) + 1]).collect()
        }
    }
}

/// Returns all pairs of special numbers, and random numbers.
pub(super) fn operands(lane: Lane) -> Vec<[u64; 3]> {
    let mut random = Random(7);
    let width = 8 * lane.bytes();
    let sign = 1_u64 << (width - 1);
    let mask = u64::MAX >> (64 - width);
    let mut special = specials(lane);
    special.extend(special.clone().iter().map(|bits| bits ^ sign));
    let mut all = Vec::new();
    for &x in &special {
        for &y in &special {
            all.push([x, y, special[random.below(special.len())]]);
        }
    }
    for _ in 0..4000 {
        let mut element = || match (lane, random.below(2)) {
            (Lane::F32, 0) => u64::from(((random.below(200_001) as f32 - 100_000.0) / 700.0).to_bits()),
            (Lane::F64, 0) => ((random.below(200_001) as f64 - 100_000.0) / 700.0).to_bits(),
            _ => random.bits() & mask,
        };
        all.push([element(), element(), element()]);
    }
    all
}

/// Calls `test` for the interpreter (`None`) and for each target of the processor.
pub(super) fn on_targets(mut test: impl FnMut(Option<Target>)) {
    test(None);
    for isa in Isa::ALL {
        if let Some(target) = Target::host_with(isa) {
            test(Some(target));
        }
    }
}
