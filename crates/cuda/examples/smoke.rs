//! Tests the GPU of this machine:
//!
//! 1. Prints the GPU's properties.
//! 2. Compiles a vector addition with the driver's assembler.
//! 3. Runs the addition and checks every element.
//! 4. Times launches.
//!
//! `smoke` is a single executable that needs only the driver. `smoke --launches` only times
//! launches. This mode also works with a stub of the driver (`TILEWRIGHT_LIBCUDA`).

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tilewright_cuda::{
    AssembleOptions, Context, DeviceBuffer, Driver, Error, Event, LaunchConfiguration, LaunchOptions, Module,
    Parameters, Stream, assemble,
};

/// `z[i] = x[i] + y[i]` for `i < n`. Each thread computes one element.
const ADD: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %a<8>;
    .reg .f32 %f<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p, %r1, %r4;
    @%p ret;
    mul.wide.u32 %a1, %r1, 4;
    ld.param.u64 %a2, [x];
    ld.param.u64 %a3, [y];
    ld.param.u64 %a4, [z];
    add.u64 %a2, %a2, %a1;
    add.u64 %a3, %a3, %a1;
    add.u64 %a4, %a4, %a1;
    ld.global.f32 %f1, [%a2];
    ld.global.f32 %f2, [%a3];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%a4], %f3;
    ret;
}
";

/// The number of elements, which is not a multiple of the block size.
const ELEMENTS: usize = (1 << 24) + 77;

fn main() -> ExitCode {
    let launches_only = std::env::args().any(|argument| argument == "--launches");
    match run(launches_only) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(launches_only: bool) -> Result<bool, Error> {
    let driver = Driver::get()?;
    println!("driver: {}, CUDA {}", driver.library(), driver.version());
    for device in driver.devices() {
        println!("device {}: {:#?}", device.ordinal(), device.properties()?);
    }
    let context = Context::current_or_primary(driver.device(0)?)?;
    let is_right = launches_only || check_add(context)?;
    for parameters in [0, 5, 20] {
        let time = time_launches(context, parameters)?;
        println!("launch, {parameters} parameters of 8 bytes: {:.0} ns", time.as_secs_f64() * 1e9);
    }
    Ok(is_right)
}

/// Adds two vectors on the GPU, and returns whether all elements equal the sums on the host.
fn check_add(context: Context) -> Result<bool, Error> {
    let start = Instant::now();
    let assembled = assemble(context, "add", ADD, AssembleOptions::default())?;
    println!("assembled in {:?}: {} bytes\n{}", start.elapsed(), assembled.cubin.len(), assembled.log);
    let add = Module::load(context, "add", &assembled.cubin)?.function("add")?;
    println!("{:?}, {} blocks on a multiprocessor", add.attributes(), add.max_active_blocks(256, 0)?);
    let add = add.configure(LaunchOptions::new(256))?;

    let x: Vec<f32> = (0..ELEMENTS).map(|i| (i % 1000) as f32 * 0.37).collect();
    let y: Vec<f32> = (0..ELEMENTS).map(|i| (i % 777) as f32 - 300.5).collect();
    let upload = |values: &[f32]| DeviceBuffer::from_bytes(context, bytemuck::cast_slice(values));
    let (on_device_x, on_device_y) = (upload(&x)?, upload(&y)?);
    let mut on_device_z = DeviceBuffer::new(context, 4 * ELEMENTS)?;
    on_device_z.fill(0xff)?;
    let mut parameters = Parameters::new();
    parameters.push(on_device_x.address()).push(on_device_y.address()).push(on_device_z.address());
    parameters.push(ELEMENTS as u32);

    let stream = Stream::new(context)?;
    context.synchronize()?;
    let grid = [ELEMENTS.div_ceil(256) as u32, 1, 1];
    let mut best = f32::INFINITY;
    for _ in 0..20 {
        let (start, end) = (Event::new(context)?, Event::new(context)?);
        start.record(stream.borrow())?;
        add.launch(grid, stream.borrow(), parameters.as_bytes())?;
        end.record(stream.borrow())?;
        end.synchronize()?;
        best = best.min(start.milliseconds_until(&end)?);
    }
    println!("add: {best:.4} ms, {:.0} GB/s", 12.0 * ELEMENTS as f32 / best / 1e6);

    let mut z = vec![0.0_f32; ELEMENTS];
    on_device_z.read(bytemuck::cast_slice_mut(&mut z))?;
    let wrong = (0..ELEMENTS).find(|&i| z[i] != x[i] + y[i]);
    match wrong {
        None => println!("all {ELEMENTS} sums are right"),
        Some(i) => println!("WRONG: z[{i}] is {}, and {} + {} is {}", z[i], x[i], y[i], x[i] + y[i]),
    }
    Ok(wrong.is_none())
}

/// Returns the host time of a launch with `count` parameters. Times several batches, and returns
/// the average of the fastest batch. Each batch is too small to fill the driver's queue.
fn time_launches(context: Context, count: usize) -> Result<Duration, Error> {
    const BATCH: u32 = 500;
    let list: Vec<String> = (0..count).map(|index| format!(".param .u64 p{index}")).collect();
    let ptx = format!(
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing({})\n{{ ret; }}\n",
        list.join(", ")
    );
    let nothing = Module::load(context, "nothing", ptx.as_bytes())?.function("nothing")?;
    let nothing = nothing.configure(LaunchOptions::new(128))?;
    let mut parameters = Parameters::new();
    let mut best = Duration::MAX;
    let stream = Stream::new(context)?;
    let mut launch = |nothing: &LaunchConfiguration| {
        parameters.clear();
        (0..count as u64).for_each(|index| {
            parameters.push(index);
        });
        nothing.launch([1, 1, 1], stream.borrow(), parameters.as_bytes())
    };
    for _ in 0..100 {
        let start = Instant::now();
        for _ in 0..BATCH {
            launch(&nothing)?;
        }
        best = best.min(start.elapsed() / BATCH);
        context.synchronize()?;
    }
    Ok(best)
}
