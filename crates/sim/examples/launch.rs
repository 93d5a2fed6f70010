//! Launches a kernel of a PTX file on the simulator, and prints the report.
//!
//! A description file has one keyword with its values on each line. File names are relative to the
//! working directory:
//!
//! ```text
//! ptx softmax.ptx           the module
//! target sm_80              the simulated device
//! kernel softmax_kernel     the kernel; by default, the first one
//! grid 1823 1 1             blocks
//! block 128 1 1             threads of a block
//! cluster 2 1 1             blocks of a cluster; by default, one
//! shared 1024               bytes of dynamic shared memory
//! buffer x.bin              an argument: the file's bytes, written back after the launch
//! null                      an argument: no memory
//! i32 781                   an argument: a number; i64, f32, f64 as well
//! ```

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use tilewright_sim::{Launch, Region, SimTarget, Simulator};

enum Argument {
    /// A file and its bytes, in memory aligned to 256 bytes.
    Buffer {
        path: String,
        room: Vec<u8>,
        bytes: usize,
    },
    Value(Vec<u8>),
}

#[derive(Default)]
struct Description {
    ptx: String,
    target: String,
    kernel: Option<String>,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    shared: u32,
    arguments: Vec<Argument>,
}

const ALIGNMENT: usize = 256;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn extent(words: &[&str]) -> Outcome<[u32; 3]> {
    let mut extent = [1; 3];
    for (axis, word) in extent.iter_mut().zip(words) {
        *axis = word.parse()?;
    }
    Ok(extent)
}

fn read(path: &str) -> Outcome<Description> {
    let mut description = Description::default();
    for line in fs::read_to_string(path)?.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let Some((name, values)) = words.split_first() else { continue };
        let value = values.first().copied().unwrap_or_default();
        match *name {
            "ptx" => description.ptx = value.into(),
            "target" => description.target = value.into(),
            "kernel" => description.kernel = Some(value.into()),
            "grid" => description.grid = extent(values)?,
            "block" => description.block = extent(values)?,
            "cluster" => description.cluster = Some(extent(values)?),
            "shared" => description.shared = value.parse()?,
            "buffer" => {
                let file = fs::read(value)?;
                let bytes = file.len();
                let mut room = vec![0; bytes + ALIGNMENT];
                let start = room.as_ptr().align_offset(ALIGNMENT);
                room[start..start + bytes].copy_from_slice(&file);
                description.arguments.push(Argument::Buffer { path: value.into(), room, bytes });
            }
            "null" => description.arguments.push(Argument::Value(0_u64.to_le_bytes().into())),
            "i32" => description.arguments.push(Argument::Value(value.parse::<i32>()?.to_le_bytes().into())),
            "i64" => description.arguments.push(Argument::Value(value.parse::<i64>()?.to_le_bytes().into())),
            "f32" => description.arguments.push(Argument::Value(value.parse::<f32>()?.to_le_bytes().into())),
            "f64" => description.arguments.push(Argument::Value(value.parse::<f64>()?.to_le_bytes().into())),
            other => return Err(format!("{path}: unknown word `{other}`").into()),
        }
    }
    Ok(description)
}

fn run(path: &str) -> Outcome<()> {
    let mut description = read(path)?;
    let target = SimTarget::new(&description.target)
        .ok_or_else(|| format!("the simulator has no target `{}`", description.target))?;
    let start = Instant::now();
    let module = Simulator::new(target).load(&fs::read_to_string(&description.ptx)?)?;
    let kernel = match &description.kernel {
        Some(kernel) => kernel.clone(),
        None => module.kernels().next().ok_or("the module has no kernel")?.to_owned(),
    };
    let layout = module.parameters(&kernel)?;
    let loaded = start.elapsed();
    let mut parameters = vec![0; layout.last().map_or(0, |last| last.offset + last.bytes)];
    let mut regions = Vec::new();
    for (argument, place) in description.arguments.iter_mut().zip(&layout) {
        let bytes = match argument {
            Argument::Buffer { room, bytes, .. } => {
                let start = room.as_ptr().align_offset(ALIGNMENT);
                let region = Region::of(&mut room[start..start + *bytes]);
                regions.push(region);
                region.address().to_le_bytes().to_vec()
            }
            Argument::Value(bytes) => bytes.clone(),
        };
        parameters[place.offset..place.offset + bytes.len()].copy_from_slice(&bytes);
    }
    let mut launch = Launch::new(&kernel, description.grid, description.block, &parameters, &regions);
    launch.cluster = description.cluster.unwrap_or([1; 3]);
    launch.dynamic_shared_bytes = description.shared;
    let start = Instant::now();
    let report = module.launch(&launch)?;
    let ran = start.elapsed();
    println!("{report}");
    for text in &report.printed {
        print!("{text}");
    }
    eprintln!("loaded in {loaded:.1?}, ran in {ran:.1?}");
    for argument in description.arguments {
        if let Argument::Buffer { path, room, bytes } = argument {
            let start = room.as_ptr().align_offset(ALIGNMENT);
            fs::write(path, &room[start..start + bytes])?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: launch <description>");
        return ExitCode::from(2);
    };
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
