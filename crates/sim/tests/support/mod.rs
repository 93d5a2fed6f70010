//! Runs small PTX kernels, also with tensor maps.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use tilewright_sim::{FaultKind, Launch, Region, Report, SimTarget, Simulator};

/// A parameter of a kernel, or memory whose address is in another parameter.
pub enum Argument<'a> {
    /// The address of memory that is read.
    Input(&'a [u8]),
    /// The address of memory that is written.
    Output(&'a mut [u8]),
    /// Read memory whose address is in another parameter.
    Memory(&'a [u8]),
    /// Written memory whose address is in another parameter.
    MemoryOutput(&'a mut [u8]),
    /// A value of 32 bits.
    U32(u32),
    /// A value of 64 bits.
    U64(u64),
    /// The bytes of an object.
    Bytes(&'a [u8]),
}

/// The launch shape of a kernel.
pub struct Shape {
    pub grid: [u32; 3],
    pub threads: u32,
    pub cluster: u32,
    pub shared_bytes: u32,
}

/// Launches the only kernel of a module. Missing parameters are zero.
pub fn launch(ptx: &str, shape: &Shape, arguments: Vec<Argument<'_>>) -> Result<Report, FaultKind> {
    let target = ptx.lines().find_map(|line| line.strip_prefix(".target ")).expect("a module has a target");
    let simulator = Simulator::new(SimTarget::new(target).expect("a target"));
    let module = simulator.load(ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let kernel = module.kernels().next().expect("the module has a kernel").to_owned();
    let layout = module.parameters(&kernel).expect("the kernel can be decoded");
    let mut parameters = vec![0; layout.last().map_or(0, |last| last.offset + last.bytes)];
    let mut regions = Vec::new();
    let mut places = layout.iter();
    for argument in arguments {
        let value = match argument {
            Argument::Input(bytes) => {
                regions.push(Region::read_only(bytes));
                Some((bytes.as_ptr() as u64).to_le_bytes().to_vec())
            }
            Argument::Output(bytes) => {
                let address = bytes.as_ptr() as u64;
                regions.push(Region::of(bytes));
                Some(address.to_le_bytes().to_vec())
            }
            Argument::Memory(bytes) => {
                regions.push(Region::read_only(bytes));
                None
            }
            Argument::MemoryOutput(bytes) => {
                regions.push(Region::of(bytes));
                None
            }
            Argument::U32(value) => Some(value.to_le_bytes().to_vec()),
            Argument::U64(value) => Some(value.to_le_bytes().to_vec()),
            Argument::Bytes(bytes) => Some(bytes.to_vec()),
        };
        if let Some(value) = value {
            let place = places.next().expect("the kernel has as many parameters");
            assert_eq!(value.len(), place.bytes, "the size of a parameter");
            parameters[place.offset..place.offset + value.len()].copy_from_slice(&value);
        }
    }
    let mut launch = Launch::new(&kernel, shape.grid, [shape.threads, 1, 1], &parameters, &regions);
    (launch.cluster[0], launch.dynamic_shared_bytes) = (shape.cluster, shape.shared_bytes);
    module.launch(&launch).map_err(|fault| {
        eprintln!("{fault:?}");
        fault.kind
    })
}

/// Runs a body in one block of `threads` threads. These registers have values:
///
/// - `%rd1` and `%rd2`: the addresses of the input and of the output;
/// - `%rd3`: the address of a tensor map;
/// - `%r1`: `%tid.x`;
/// - `%r2`: the address of 16 KiB of shared memory;
/// - `%r3` and `%r4`: the lane and the warp.
pub fn run(
    body: &str,
    threads: u32,
    input: &[u8],
    output: &mut [u8],
    map: &[u8; 128],
) -> Result<(), FaultKind> {
    run_cluster(body, 1, threads, input, output, map)
}

/// Runs a body in one cluster of `blocks` blocks.
pub fn run_cluster(
    body: &str,
    blocks: u32,
    threads: u32,
    input: &[u8],
    output: &mut [u8],
    map: &[u8; 128],
) -> Result<(), FaultKind> {
    let needs = [".tile::gather4", ".tile::scatter4", ".cta_group"].iter().any(|text| body.contains(text));
    let target = if needs { "sm_100a" } else { "sm_90a" };
    let text = format!(
        ".version 8.6
.target {target}
.address_size 64
.visible .entry kernel(.param .u64 source, .param .u64 target, .param .align 64 .b8 map[128])
{{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<128>;
    .reg .f32 %f<64>;
    .reg .b64 %rd<32>;
    .shared .align 1024 .b8 memory[16384];
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [target];
    mov.b64 %rd3, map;
    cvta.param.u64 %rd3, %rd3;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, memory;
    and.b32 %r3, %r1, 31;
    shr.u32 %r4, %r1, 5;
{body}
    ret;
}}
"
    );
    let arguments = vec![Argument::Input(input), Argument::Output(output), Argument::Bytes(map)];
    let shape = Shape { grid: [blocks, 1, 1], threads, cluster: blocks, shared_bytes: 0 };
    launch(&text, &shape, arguments).map(|_| ())
}

pub fn expect_fault(body: &str, threads: u32, input: &[u8], map: &[u8; 128]) -> FaultKind {
    let mut output = vec![0; 4096];
    run(body, threads, input, &mut output, map).expect_err("the body is wrong")
}
