//! Launches PTX text with arguments in the order of the kernel's parameters.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub use tilewright_fuzz::random::Random;
use tilewright_sim::{Fault, FaultKind, Launch, LoadedModule, Region, Report, SimTarget, Simulator};

pub enum Argument<'a> {
    /// The address of memory that the kernel may access.
    Memory(&'a mut [u8]),
    /// The bytes of a value.
    Value(Vec<u8>),
}

pub fn memory<T: bytemuck::Pod>(elements: &mut [T]) -> Argument<'_> {
    Argument::Memory(bytemuck::cast_slice_mut(elements))
}

pub fn value<T: bytemuck::NoUninit>(value: T) -> Argument<'static> {
    Argument::Value(bytemuck::bytes_of(&value).to_vec())
}

pub fn load(target: &str, text: &str) -> LoadedModule {
    let simulator = Simulator::new(SimTarget::new(target).expect("a target"));
    simulator.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn launch_with(
    module: &LoadedModule,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: Vec<Argument<'_>>,
    change: impl Fn(&mut Launch<'_>),
) -> Result<Report, Box<Fault>> {
    let kernel = module.kernels().next().expect("the module has a kernel").to_owned();
    let layout = module.parameters(&kernel)?;
    let mut parameters = vec![0; layout.last().map_or(0, |last| last.offset + last.bytes)];
    let mut regions = Vec::new();
    for (argument, place) in arguments.into_iter().zip(&layout) {
        let bytes = match argument {
            Argument::Memory(bytes) => {
                let region = Region::of(bytes);
                regions.push(region);
                region.address().to_le_bytes().to_vec()
            }
            Argument::Value(bytes) => bytes,
        };
        assert!(bytes.len() <= place.bytes, "the argument fits its parameter");
        parameters[place.offset..place.offset + bytes.len()].copy_from_slice(&bytes);
    }
    let mut launch = Launch::new(&kernel, grid, block, &parameters, &regions);
    change(&mut launch);
    module.launch(&launch)
}

pub fn launch(text: &str, grid: u32, block: u32, arguments: Vec<Argument<'_>>) -> Result<Report, Box<Fault>> {
    launch_with(&load("sm_100", text), [grid, 1, 1], [block, 1, 1], arguments, |_| ())
}

/// Returns a module for `sm_100` with one kernel and 64-bit parameters.
pub fn kernel(parameters: &[&str], body: &str) -> String {
    let parameters: Vec<_> = parameters.iter().map(|name| format!(".param .u64 {name}")).collect();
    format!(
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry kernel({})\n{{\n{body}\n}}\n",
        parameters.join(", ")
    )
}

pub fn fault(result: Result<Report, Box<Fault>>) -> FaultKind {
    match result {
        Ok(_) => panic!("the launch finds no fault"),
        Err(fault) => fault.kind,
    }
}

/// Evaluates `%d` of the type `to` from `%a`, `%b` and `%c` of the types `from`, for each row of
/// raw bits.
pub fn evaluate(instructions: &str, to: &str, from: &[&str], rows: &[[u64; 3]]) -> Vec<u64> {
    let register = |ty: &str| match ty {
        "pred" => "pred".to_owned(),
        _ => format!("b{}", bits(ty).max(16)),
    };
    let names = ["a", "b", "c"].iter().zip(from);
    let declarations = names.clone().map(|(name, ty)| format!(".reg .{} %{name};", register(ty)));
    let loads = names
        .enumerate()
        .map(|(index, (name, ty))| format!("ld.global.b{} %{name}, [%at+{}];", bits(ty).max(8), 8 * index));
    let store = match to {
        "pred" => "selp.b32 %x, 1, 0, %d;\n    st.global.b32 [%at], %x;".to_owned(),
        _ => format!("st.global.b{} [%at], %d;", bits(to).max(8)),
    };
    let lines = [
        ".reg .b64 %in, %out, %at;\n    .reg .b32 %t, %n, %k, %x, %y;\n    .reg .pred %p, %q;".to_owned(),
        format!(".reg .{} %d;", register(to)),
    ];
    let place = [
        "ld.param.u64 %in, [in];\n    ld.param.u64 %out, [out];".to_owned(),
        "mov.u32 %t, %tid.x;\n    mov.u32 %n, %ctaid.x;\n    mad.lo.u32 %k, %n, 32, %t;".to_owned(),
        "mad.wide.u32 %at, %k, 24, %in;".to_owned(),
    ];
    let end =
        [instructions.to_owned(), "mad.wide.u32 %at, %k, 8, %out;".to_owned(), store, "ret;".to_owned()];
    let lines: Vec<_> = lines.into_iter().chain(declarations).chain(place).chain(loads).chain(end).collect();
    let body = format!("    {}", lines.join("\n    "));
    let blocks = rows.len().div_ceil(32);
    let mut input: Vec<[u64; 3]> = rows.to_vec();
    input.resize(blocks * 32, [0; 3]);
    let mut output = vec![0_u64; blocks * 32];
    let text = kernel(&["in", "out"], &body);
    let arguments = vec![memory(&mut input), memory(&mut output)];
    launch(&text, blocks as u32, 32, arguments).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    output.truncate(rows.len());
    output
}

fn bits(ty: &str) -> u32 {
    let digits = ty.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    match digits.split_once('x') {
        Some((bits, count)) => bits.parse::<u32>().expect("a type") * count.parse::<u32>().expect("a type"),
        None => digits.parse().unwrap_or(32),
    }
}

/// Returns rows of random values of `bits` bits, with edge values among them.
pub fn rows(seed: u64, bits: u32) -> Vec<[u64; 3]> {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let edges = [0, 1, 2, 31, 32, mask, mask - 1, mask >> 1, (mask >> 1) + 1];
    let mut random = Random(seed);
    let mut pick = |round: usize| {
        if round.is_multiple_of(3) { random.pick(&edges) } else { random.bits() & mask }
    };
    (0..256).map(|round| [pick(round), pick(round / 2), pick(round / 3)]).collect()
}
