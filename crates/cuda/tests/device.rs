//! Tests the crate with the driver and the GPU of this machine.
#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

use std::env;
use std::process::Command;

use tilewright_cuda::{
    AssembleOptions, Capability, Context, Cupti, DeviceBuffer, Driver, Error, Event, Function, LaunchOptions,
    Module, Parameters, Stream, StreamRef, TensorMap, TensorMapElement, TensorMapSource, TensorMapSwizzle,
    assemble,
};

/// Returns the context of the first GPU. Returns `None` if there is no GPU, or if its generation is
/// less than `major`.
fn context(major: u32) -> Option<Context> {
    let context = Driver::open(None).and_then(|driver| Context::current_or_primary(driver.device(0)?));
    match context {
        Ok(context) if context.device().capability() >= (Capability { major, minor: 0 }) => Some(context),
        Ok(context) => {
            eprintln!("skipped: the GPU has compute capability {}", context.device().capability());
            None
        }
        Err(error) => {
            assert!(error.is_unavailable(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn function(context: Context, ptx: &str) -> Function {
    let cubin = assemble(context, "kernel", ptx, AssembleOptions::default()).unwrap().cubin;
    Module::load(context, "kernel", &cubin).unwrap().function("kernel").unwrap()
}

/// Returns a kernel with one pointer parameter, in `%out`. `%thread` has the index of the thread in
/// the grid.
fn kernel(target: &str, declarations: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target {target}\n.address_size 64\n{declarations}\n.visible .entry kernel(.param .u64 out)\n{{\n\
         .reg .b32 %r<8>, %thread;\n.reg .b64 %out, %at;\n.reg .b64 %a<4>;\n\
         ld.param.u64 %out, [out];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n\
         mad.lo.u32 %thread, %r0, %r1, %r2;\nmul.wide.u32 %at, %thread, 4;\nadd.u64 %at, %out, %at;\n{body}\nret;\n}}\n"
    )
}

/// Launches a kernel with one word for each thread. Checks that word `i` becomes `expect(i)`.
fn check(context: Context, ptx: &str, options: LaunchOptions, blocks: u32, expect: impl Fn(u32) -> u32) {
    let words = blocks * options.threads[0];
    let mut buffer = DeviceBuffer::new(context, 4 * words as usize).unwrap();
    buffer.fill(0xee).unwrap();
    let launch = function(context, ptx).configure(options).unwrap();
    let mut parameters = Parameters::new();
    parameters.push(buffer.address());
    launch.launch([blocks, 1, 1], StreamRef::DEFAULT, parameters.as_bytes()).unwrap();
    let mut found = vec![0; words as usize];
    buffer.read(bytemuck::cast_slice_mut(&mut found)).unwrap();
    assert_eq!(found, (0..words).map(expect).collect::<Vec<u32>>());
}

const STORE: &str = "mad.lo.u32 %r3, %thread, 3, 5;\nst.global.u32 [%at], %r3;";

#[test]
fn launches_of_every_kind_run() {
    let Some(context) = context(0) else { return };
    let plain = LaunchOptions::new(96);
    let ptx = kernel("sm_75", "", STORE);
    check(context, &ptx, plain, 7, |thread| 3 * thread + 5);
    check(context, &ptx, LaunchOptions { cooperative: true, ..plain }, 7, |thread| 3 * thread + 5);
    if context.device().capability().major >= 9 {
        check(context, &ptx, LaunchOptions { programmatic: true, ..plain }, 7, |thread| 3 * thread + 5);
    }
}

#[test]
fn clusters_run() {
    let Some(context) = context(9) else { return };
    let body = "mov.u32 %r3, %cluster_ctaid.x;\nmov.u32 %r4, %cluster_nctaid.x;\nmad.lo.u32 %r3, %r4, 100, %r3;\n\
                st.global.u32 [%at], %r3;";
    for size in [2, 8, 16] {
        let options = LaunchOptions { cluster: [size, 1, 1], ..LaunchOptions::new(32) };
        let ptx = kernel("sm_90", "", body);
        check(context, &ptx, options, 2 * size, |thread| size * 100 + thread / 32 % size);
        let clusters = function(context, &ptx).configure(options).unwrap().max_active_clusters().unwrap();
        assert!(clusters > 0, "{size}");
    }
}

#[test]
fn all_shared_memory_of_a_block_can_be_had() {
    let Some(context) = context(0) else { return };
    let limit = context.device().properties().unwrap().shared_memory_per_block_optin;
    // The threads write the last words of shared memory in reverse order, and read them in order.
    let body = format!(
        "mov.u32 %r3, shared;\nshl.b32 %r4, %r2, 2;\nadd.u32 %r3, %r3, {};\nsub.u32 %r5, %r3, %r4;\nadd.u32 %r3, %r3, -124;\n\
         add.u32 %r3, %r3, %r4;\nst.shared.u32 [%r5], %r2;\nbar.sync 0;\nld.shared.u32 %r6, [%r3];\n\
         st.global.u32 [%at], %r6;",
        limit - 4
    );
    let ptx = kernel("sm_75", ".extern .shared .align 16 .b8 shared[];", &body);
    let options = LaunchOptions { shared_bytes: limit, ..LaunchOptions::new(32) };
    check(context, &ptx, options, 3, |thread| 31 - thread % 32);
    let error =
        function(context, &ptx).configure(LaunchOptions { shared_bytes: limit + 1, ..options }).unwrap_err();
    let expect = Error::OutOfSharedMemory { kernel: "kernel".into(), dynamic: limit + 1, fixed: 0, limit };
    assert_eq!(error, expect);
}

#[test]
fn parameters_are_where_ptx_looks_for_them() {
    let Some(context) = context(0) else { return };
    let ptx = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry kernel(.param .u8 a, .param .u64 out, \
               .param .u16 b, .param .u32 c, .param .align 64 .b8 d[64])\n{\n.reg .b64 %out;\n.reg .b32 %r<5>;\n\
               ld.param.u64 %out, [out];\nld.param.u8 %r0, [a];\nld.param.u16 %r1, [b];\nld.param.u32 %r2, [c];\n\
               ld.param.u32 %r3, [d+60];\nst.global.u32 [%out], %r0;\nst.global.u32 [%out+4], %r1;\n\
               st.global.u32 [%out+8], %r2;\nst.global.u32 [%out+12], %r3;\nret;\n}\n";
    let launch = function(context, ptx).configure(LaunchOptions::new(1)).unwrap();
    let buffer = DeviceBuffer::new(context, 16).unwrap();
    let mut parameters = Parameters::new();
    parameters.push(200_u8).push(buffer.address()).push(60_000_u16).push(0xdead_beef_u32);
    let block: Vec<u8> = (0..64).collect();
    let offset = match launch.function().parameter_offset(4) {
        Ok(offset) => offset,
        Err(error @ Error::NotInThisDriver { .. }) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    parameters.push_at(&block, offset);
    launch.launch([1; 3], StreamRef::DEFAULT, parameters.as_bytes()).unwrap();
    let mut found = [0_u32; 4];
    buffer.read(bytemuck::cast_slice_mut(&mut found)).unwrap();
    assert_eq!(found, [200, 60_000, 0xdead_beef, u32::from_le_bytes([60, 61, 62, 63])]);

    // The block of parameters is too short. Expected: an error of this crate.
    let error = launch.launch([1; 3], StreamRef::DEFAULT, &parameters.as_bytes()[..16]).unwrap_err();
    let expected = offset + 64;
    assert_eq!(error, Error::WrongParameters { kernel: "kernel".into(), found: 16, expected });
    assert!(matches!(launch.function().parameter_offset(5), Err(Error::NoSuchParameter { count: 5, .. })));
}

#[test]
fn the_assembler_says_what_is_wrong_and_where() {
    let Some(context) = context(0) else { return };
    let error =
        assemble(context, "kernel", &kernel("sm_75", "", "bogus.u32 %r3;"), AssembleOptions::default());
    let Err(Error::Assembler { kernel, log, cause }) = error else { panic!("{error:?}") };
    assert_eq!((&*kernel, cause.code), ("kernel", 218));
    assert!(log.contains("line 17") && log.contains("bogus"), "{log}");
}

#[test]
fn kernels_have_attributes() {
    let Some(context) = context(0) else { return };
    let capability = context.device().capability();
    let options = AssembleOptions { line_info: true, max_registers: Some(64), ..AssembleOptions::default() };
    let ptx = kernel(
        "sm_75",
        ".shared .align 16 .b8 fixed[256];",
        &format!("st.shared.u32 [fixed], %r2;\n{STORE}"),
    );
    let assembled = assemble(context, "kernel", &ptx, options).unwrap();
    let module = Module::load(context, "kernel", &assembled.cubin).unwrap();
    let attributes = module.function("kernel").unwrap().attributes();
    assert!((1..=64).contains(&attributes.registers), "{attributes:?}");
    assert_eq!(
        (attributes.local_bytes, attributes.shared_bytes, attributes.max_threads_per_block),
        (0, 256, 1024)
    );
    assert_eq!(attributes.binary_version, capability.major * 10 + capability.minor);
    assert!(matches!(module.function("other"), Err(Error::Call(call)) if call.code == 500));
}

#[test]
fn code_for_one_architecture_alone_is_assembled() {
    let Some(context) = context(9) else { return };
    if (context.device().capability()) == (Capability { major: 9, minor: 0 }) {
        let ptx = kernel("sm_90a", "", &format!("setmaxnreg.inc.sync.aligned.u32 232;\n{STORE}"));
        check(context, &ptx, LaunchOptions::new(128), 2, |thread| 3 * thread + 5);
    }
}

#[test]
fn memory_streams_and_events() {
    let Some(context) = context(0) else { return };
    let bytes: Vec<u8> = (0..100_003_u32).map(|i| (i % 251) as u8).collect();
    let buffer = DeviceBuffer::from_bytes(context, &bytes).unwrap();
    let mut copy = DeviceBuffer::new(context, bytes.len()).unwrap();
    let (stream, start, end) =
        (Stream::new(context).unwrap(), Event::new(context).unwrap(), Event::new(context).unwrap());
    context.synchronize().unwrap();
    start.record(stream.borrow()).unwrap();
    copy.fill_async(9, stream.borrow()).unwrap();
    copy.copy_from(&buffer, bytes.len() - 1, stream.borrow()).unwrap();
    end.record(stream.borrow()).unwrap();
    end.synchronize().unwrap();
    assert!(start.milliseconds_until(&end).unwrap() > 0.0);
    let mut found = vec![0; bytes.len()];
    copy.read(&mut found).unwrap();
    assert_eq!(found[..bytes.len() - 1], bytes[..bytes.len() - 1]);
    assert_eq!(found.last(), Some(&9));
    assert!(!context.is_capturing(stream.borrow()).unwrap());
    // The driver allocates memory in pages of 2 MiB.
    let page = DeviceBuffer::new(context, 2 << 20).unwrap();
    assert!(context.is_mapped(page.address() + (2 << 20) - 1).unwrap());
    assert!(!context.is_mapped(16).unwrap());
    let (free, total) = context.memory_info().unwrap();
    assert!(free < total && total <= context.device().properties().unwrap().memory);
}

#[test]
fn tensor_maps_are_encoded() {
    let Some(context) = context(9) else { return };
    let source = TensorMapSource {
        element: TensorMapElement::F16,
        address: 0x7f00_0000_0000,
        shape: &[4096, 512],
        strides: &[8192],
        block: &[64, 128],
        swizzle: TensorMapSwizzle::Bytes128,
        ..TensorMapSource::default()
    };
    let map = TensorMap::encode(context, &source).unwrap();
    assert_ne!(map.as_bytes(), [0; 128]);
}

/// CUPTI's time of a kernel is about the time that the kernel waits, and at most that between
/// events.
#[test]
fn cupti_times_a_kernel() {
    let Some(context) = context(7) else { return };
    let folders: Vec<_> =
        env::var_os("CUPTI_FOLDERS").map_or(Vec::new(), |list| env::split_paths(&list).collect());
    let begun = Cupti::get(context.device().driver().version(), &folders);
    let cupti = match begun.map_err(str::to_owned).and_then(|cupti| cupti.start().map(|()| cupti)) {
        Ok(cupti) => cupti,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    // The kernel waits for 300 microseconds of the GPU's clock.
    let wait = "mov.u64 %a0, %globaltimer;\nadd.u64 %a0, %a0, 300000;\nWAIT:\nmov.u64 %a1, %globaltimer;\n\
                setp.lt.u64 %p0, %a1, %a0;\n@%p0 bra WAIT;\nst.global.u32 [%at], %thread;";
    let ptx = kernel("sm_75", "", &format!(".reg .pred %p<1>;\n{wait}"));
    let launch = function(context, &ptx).configure(LaunchOptions::new(32)).unwrap();
    let buffer = DeviceBuffer::new(context, 128).unwrap();
    let mut parameters = Parameters::new();
    parameters.push(buffer.address());
    let (before, after) = (Event::new(context).unwrap(), Event::new(context).unwrap());
    before.record(StreamRef::DEFAULT).unwrap();
    cupti.push(77).unwrap();
    launch.launch([1; 3], StreamRef::DEFAULT, parameters.as_bytes()).unwrap();
    cupti.pop();
    after.record(StreamRef::DEFAULT).unwrap();
    after.synchronize().unwrap();
    let times = cupti.take().unwrap();
    cupti.stop();
    assert_eq!(times.len(), 1, "by {}: {times:?}", cupti.library());
    let (time, around) = (times[0].end - times[0].start, before.milliseconds_until(&after).unwrap());
    assert_eq!(times[0].number, 77);
    assert!((290_000..400_000).contains(&time) && time as f32 <= around * 1e6, "{time} ns, {around} ms");
}

/// Runs in its own process, because a failure on the device makes CUDA unusable.
#[test]
fn an_illegal_access_is_reported_with_its_kernel() {
    const CHILD: &str = "TILEWRIGHT_CUDA_TEST_ILLEGAL";
    let Some(context) = context(0) else { return };
    if env::var_os(CHILD).is_none() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "an_illegal_access_is_reported_with_its_kernel"]).env(CHILD, "1");
        assert!(command.status().unwrap().success());
        return;
    }
    let ptx = kernel("sm_75", "", "mov.u64 %a0, 0;\nst.global.u32 [%a0], %thread;");
    let launch = function(context, &ptx).configure(LaunchOptions::new(1)).unwrap();
    let mut parameters = Parameters::new();
    parameters.push(0_u64);
    launch.launch([1; 3], StreamRef::DEFAULT, parameters.as_bytes()).unwrap();
    let error = context.synchronize().unwrap_err();
    assert!(matches!(&error, Error::Call(call) if call.code == 700 && call.is_asynchronous()), "{error}");
    let error = launch.launch([1; 3], StreamRef::DEFAULT, parameters.as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("kernel `kernel`: cuLaunchKernel returns "), "{error}");
}
