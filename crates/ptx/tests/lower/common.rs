//! Compiles kernels to PTX, and launches them on the CPU and in the simulator.

pub use tilewright_fuzz::random::Random;

use tilewright_frontend::{Argument, Constant, HostValue, Options, Request, SourceHost};
use tilewright_gpu_ir::GpuTarget;
use tilewright_ir::{Dtype, Module};

/// The beginning of every test module in Python.
const HEADER: &str = "import triton\nimport triton.language as tl\n\n";

/// An argument of a launch.
#[derive(Clone)]
pub enum Value {
    /// A tensor.
    Tensor(Vec<u8>),
    /// The bits of a number, and its size in bytes.
    Scalar(u64, usize),
}

/// Makes random tensors.
pub trait RandomTensor {
    /// Returns a tensor of random numbers. Floats are from -2 to 2; integers have random bits.
    fn tensor(&mut self, dtype: Dtype, count: usize) -> Value;
}

impl RandomTensor for Random {
    fn tensor(&mut self, dtype: Dtype, count: usize) -> Value {
        let number = |bits: u64| (bits % 33) as f64 / 8.0 - 2.0;
        let bytes = (0..count).flat_map(|_| {
            let bits = self.bits();
            let bits = if dtype.is_float() { encode(dtype, number(bits)) } else { bits };
            bits.to_le_bytes()[..dtype.bytes()].to_vec()
        });
        Value::Tensor(bytes.collect())
    }
}

/// Returns a tensor of zeros.
pub fn zeros(dtype: Dtype, count: usize) -> Value {
    Value::Tensor(vec![0; count * dtype.bytes()])
}

/// Returns an int32.
pub fn int(value: i32) -> Value {
    Value::Scalar(u64::from(value as u32), 4)
}

/// Returns an fp32.
pub fn float(value: f32) -> Value {
    Value::Scalar(u64::from(value.to_bits()), 4)
}

fn encode(dtype: Dtype, value: f64) -> u64 {
    match dtype {
        Dtype::F64 => value.to_bits(),
        Dtype::F32 => (value as f32).to_bits().into(),
        Dtype::F16 => half::f16::from_f64(value).to_bits().into(),
        Dtype::BF16 => half::bf16::from_f64(value).to_bits().into(),
        other => panic!("{other} is not encoded here"),
    }
}

/// Returns the number that bits encode.
pub fn decode(dtype: Dtype, bits: u64) -> f64 {
    match dtype {
        Dtype::F64 => f64::from_bits(bits),
        Dtype::F32 => f32::from_bits(bits as u32).into(),
        Dtype::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Dtype::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        _ => bits as f64,
    }
}

/// Returns the bits of element `index`.
pub fn element(bytes: &[u8], dtype: Dtype, index: usize) -> u64 {
    let mut bits = [0; 8];
    let size = dtype.bytes();
    bits[..size].copy_from_slice(&bytes[index * size..][..size]);
    u64::from_le_bytes(bits)
}

/// Parses an argument of a signature: a constant or a type. `:16` states that the value is a
/// multiple of 16.
fn argument(text: &str) -> Argument {
    let (name, divisibility) = text.split_once(':').unwrap_or((text, "1"));
    let divisibility = divisibility.parse().expect("a divisibility is a number");
    if let Some(pointee) = name.strip_prefix('*').and_then(Dtype::parse) {
        return Argument::Pointer { pointee, divisibility, is_const: false };
    }
    if let Some(dtype) = Dtype::parse(name) {
        return Argument::Scalar { dtype, divisibility };
    }
    let constant = match (name.parse(), name.parse()) {
        (Ok(int), _) => Constant::Int(int),
        (_, Ok(float)) => Constant::Float(float),
        _ => Constant::Str(name.into()),
    };
    Argument::Constexpr(HostValue::Constant(constant))
}

/// Returns the optimized IR of the function `kernel` of a Python module.
pub fn compile(name: &str, text: &str, kernel: &str, signature: &str) -> Module {
    compile_with(name, text, kernel, signature, Options::default())
}

/// Returns the optimized IR of the function `kernel` of a Python module, with options.
fn compile_with(name: &str, text: &str, kernel: &str, signature: &str, options: Options) -> Module {
    let mut host = SourceHost::new(name, text).unwrap_or_else(|failure| panic!("{failure:?}"));
    let kernel = host.function(kernel).unwrap_or_else(|| panic!("there is no kernel {kernel}"));
    let arguments = signature.split(',').map(str::trim).map(argument).collect();
    let request = Request { kernel, arguments, options };
    let mut module = tilewright_frontend::lower(&request, &mut host)
        .unwrap_or_else(|failure| panic!("{:#?}", failure.diagnostics));
    tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
    module
}

/// Returns the optimized IR of the function `k` in a text without imports.
pub fn kernel(text: &str, signature: &str) -> Module {
    compile("k.py", &format!("{HEADER}{text}"), "k", signature)
}

/// Returns the optimized IR of `k` with its assertions.
pub fn checked_kernel(text: &str, signature: &str) -> Module {
    let options = Options { debug: true, ..Options::default() };
    compile_with("k.py", &format!("{HEADER}{text}"), "k", signature, options)
}

/// Returns the PTX of a kernel, and the bytes of its shared memory.
pub fn lower(module: &Module, target: &str, warps: u32) -> (String, u32) {
    lower_in_stages(module, target, warps, 1)
}

/// Returns the PTX of a kernel with `stages` loop stages, and its shared bytes.
pub fn lower_in_stages(module: &Module, target: &str, warps: u32, stages: u32) -> (String, u32) {
    let target = GpuTarget::named(target).expect("the tests name targets that there are");
    let program =
        tilewright_gpu::compile(module, target, warps, stages).unwrap_or_else(|error| panic!("{error:#?}"));
    let ptx = tilewright_ptx::lower(&program).unwrap_or_else(|error| panic!("{error:#?}"));
    (tilewright_ptx::isa::print(&ptx), program.header.shared_bytes)
}

/// Runs a kernel on the CPU.
pub fn run_cpu(module: &Module, grid: [u32; 3], values: &mut [Value]) {
    use tilewright_cpu::memory::Region;
    let program = tilewright_cpu::Program::new(module).unwrap_or_else(|error| panic!("{error:#?}"));
    let arguments: Vec<_> = values
        .iter_mut()
        .map(|value| match value {
            Value::Tensor(bytes) => {
                let region = Region::of(bytes);
                tilewright_cpu::Argument::Pointer { address: region.address(), region }
            }
            Value::Scalar(bits, _) => tilewright_cpu::Argument::Scalar(*bits),
        })
        .collect();
    let interrupt = tilewright_cpu::Interrupt::Never;
    let launch = tilewright_cpu::Launch {
        grid,
        arguments: &arguments,
        foreign: &[],
        threads: 1,
        interrupt,
        padded: None,
        machine_code: true,
    };
    program.launch(&launch).unwrap_or_else(|error| panic!("{error:#?}"));
}

/// Runs PTX in the simulator; `Err` is the fault.
pub fn run_sim(
    module: &Module,
    target: &str,
    warps: u32,
    grid: [u32; 3],
    values: &mut [Value],
) -> Result<tilewright_sim::Report, String> {
    let (text, shared_bytes) = lower(module, target, warps);
    run_text(&text, shared_bytes, target, warps, grid, values)
}

/// Runs a text's first kernel in the simulator; `Err` is the fault.
pub fn run_text(
    text: &str,
    shared_bytes: u32,
    target: &str,
    warps: u32,
    grid: [u32; 3],
    values: &mut [Value],
) -> Result<tilewright_sim::Report, String> {
    let device = tilewright_sim::SimTarget::new(target).expect("the simulator has the target");
    let loaded =
        tilewright_sim::Simulator::new(device).load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let name = loaded.kernels().next().expect("there is a kernel").to_owned();
    let places = loaded.parameters(&name).unwrap_or_else(|fault| panic!("{fault}"));
    let mut parameters = vec![0; places.last().map_or(0, |last| last.offset + last.bytes)];
    let mut regions = Vec::new();
    // Signatures promise aligned tensors.
    let mut memory: Vec<(Vec<u8>, std::ops::Range<usize>)> = Vec::new();
    for value in values.iter() {
        let Value::Tensor(bytes) = value else { continue };
        let mut copy = vec![0; bytes.len() + ALIGNMENT];
        let start = copy.as_ptr().align_offset(ALIGNMENT);
        copy[start..][..bytes.len()].copy_from_slice(bytes);
        memory.push((copy, start..start + bytes.len()));
    }
    let mut tensors = memory.iter_mut();
    for (value, place) in values.iter().zip(&places) {
        let bytes = match value {
            Value::Tensor(_) => {
                let (copy, range) = tensors.next().expect("each tensor has a copy");
                let region = tilewright_sim::Region::of(&mut copy[range.clone()]);
                regions.push(region);
                region.address().to_le_bytes().to_vec()
            }
            Value::Scalar(bits, size) => bits.to_le_bytes()[..*size].to_vec(),
        };
        parameters[place.offset..][..bytes.len()].copy_from_slice(&bytes);
    }
    let mut launch = tilewright_sim::Launch::new(&name, grid, [warps * 32, 1, 1], &parameters, &regions);
    launch.dynamic_shared_bytes = shared_bytes;
    let done = loaded.launch(&launch).map_err(|fault| format!("{fault}\n{text}"));
    let tensors = values.iter_mut().filter_map(|value| match value {
        Value::Tensor(bytes) => Some(bytes),
        Value::Scalar(..) => None,
    });
    for (bytes, (copy, range)) in tensors.zip(memory) {
        bytes.copy_from_slice(&copy[range]);
    }
    done
}

/// The alignment of tensors in bytes.
const ALIGNMENT: usize = 64;

/// Checks that the CPU and the simulator compute the same tensors. The targets are `sm_75`, `sm_80`
/// and `sm_90a`, with one to eight warps. Elements may differ by `tolerance`, relative to the
/// larger of 1 and the value.
pub fn check(module: &Module, grid: [u32; 3], values: &[Value], dtypes: &[Dtype], tolerance: f64) {
    let on = [("sm_75", 4), ("sm_80", 1), ("sm_80", 4), ("sm_90a", 8)];
    check_on(&on, module, grid, values, dtypes, tolerance);
}

/// Does what `check` does for these targets, each with a number of warps.
pub fn check_on(
    on: &[(&str, u32)],
    module: &Module,
    grid: [u32; 3],
    values: &[Value],
    dtypes: &[Dtype],
    tolerance: f64,
) {
    let mut expected = values.to_vec();
    run_cpu(module, grid, &mut expected);
    for &(target, warps) in on {
        let mut found = values.to_vec();
        run_sim(module, target, warps, grid, &mut found)
            .unwrap_or_else(|fault| panic!("{target}, {warps} warps: {fault}"));
        for (place, ((expected, found), &dtype)) in expected.iter().zip(&found).zip(dtypes).enumerate() {
            let (Value::Tensor(expected), Value::Tensor(found)) = (expected, found) else { continue };
            for index in 0..expected.len() / dtype.bytes() {
                let [x, y] = [expected, found].map(|bytes| element(bytes, dtype, index));
                let [a, b] = [x, y].map(|bits| decode(dtype, bits));
                let is_same =
                    x == y || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(1.0);
                assert!(is_same, "{target}, {warps} warps: tensor {place}[{index}] is {b}, on the CPU {a}");
            }
        }
    }
}
