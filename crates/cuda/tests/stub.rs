//! Tests the crate with the stub of the driver (`crates/cuda/stub`).

#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

mod common;

use std::path::Path;
use std::process::Command;
use std::{env, ptr, thread};

use common::{PTX, Stub, module, stub_file};
use tilewright_cuda::{
    AssembleOptions, CallError, Capability, Context, DeviceBuffer, Driver, Error, Event, LaunchOptions,
    Module, Parameters, Stream, StreamRef, TensorMap, TensorMapElement, TensorMapRule, TensorMapSource,
    TensorMapWindow, Version, assemble,
};

/// Opens a stub with the configuration `words`, and checks the error message.
fn check_open(words: &str, expect: &str) {
    let error = Stub::new(words).open().unwrap_err();
    let text = error.to_string();
    assert_eq!(text, expect);
    assert!(!text.contains('\n') && error.is_unavailable());
}

#[test]
fn a_machine_that_cannot_run_kernels_is_told_so_in_a_line() {
    check_open(
        "devices=0",
        "the NVIDIA driver (CUDA 12.8) finds no GPU: there is none, or CUDA_VISIBLE_DEVICES hides it",
    );
    check_open(
        "version=11040",
        "the NVIDIA driver is too old: it supports CUDA 11.4, and CUDA 11.8 is needed; update the driver",
    );
    assert!(Stub::new("version=11080").open().is_ok());
    check_open(
        "fail=cuInit:803",
        "the NVIDIA driver (CUDA 12.8) does not start: cuInit returns CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has \
         unsupported display driver / cuda driver combination; library and kernel module are of different releases, as \
         after an update: restart the machine",
    );
    check_open(
        "fail=cuDeviceGetCount:777",
        "the NVIDIA driver (CUDA 12.8) does not start: cuDeviceGetCount returns CUDA_ERROR_UNKNOWN (777): unknown error",
    );
    check_open(
        "version=11070,devices=0",
        "the NVIDIA driver is too old: it supports CUDA 11.7, and CUDA 11.8 is needed; update the driver",
    );
    let stub = Stub::new("fail=cuInit:34");
    let text = stub.open().unwrap_err().to_string();
    assert_eq!(
        text,
        format!(
            "there is no NVIDIA driver on this machine: {} is the stub library of the CUDA toolkit, which is only for linking",
            stub.file.display()
        )
    );
    let text = Stub::new("fail=cuInit:999").open().unwrap_err().to_string();
    assert_eq!(
        text,
        "the NVIDIA driver (CUDA 12.8) does not start: cuInit returns CUDA_ERROR_UNKNOWN (999): unknown error; this process \
         may lack access to /dev/nvidia*, or the module nvidia-uvm is not loaded: see whether `nvidia-smi` works"
    );
}

#[test]
fn no_library_and_a_library_that_is_no_driver() {
    let missing = Driver::open(Some(Path::new("no/such/libcuda.so.1"))).unwrap_err();
    assert!(missing.is_unavailable() && !missing.to_string().contains('\n'), "{missing}");
    if cfg!(target_os = "linux") {
        assert_eq!(
            missing.to_string(),
            "there is no NVIDIA driver on this machine: `no/such/libcuda.so.1` cannot be opened (cannot open shared object \
             file: No such file or directory)"
        );
        let other = Driver::open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert_eq!(other.to_string(), "`libc.so.6` is not a usable CUDA driver: it has no function `cuInit`");
    }
}

#[test]
fn the_folder_of_the_library_may_be_given() {
    let stub = Stub::new("");
    let driver = Driver::open(stub.file.parent()).unwrap();
    assert_eq!(driver.library(), stub.file.display().to_string());
    assert_eq!(driver.version(), Version { major: 12, minor: 8 });
    let bytes = stub.file.metadata().unwrap().len();
    if cfg!(unix) {
        assert_eq!(driver.identity(), format!("CUDA 12.8, libcuda.so.1, {bytes} bytes"));
    }
}

/// Runs in another process, because a process opens the driver once.
#[test]
fn the_environment_names_the_library() {
    const CHILD: &str = "TILEWRIGHT_CUDA_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        let driver = Driver::get().unwrap();
        assert_eq!((driver.version(), driver.num_devices()), (Version { major: 12, minor: 4 }, 3));
        assert!(ptr::eq(driver, Driver::get().unwrap()));
        return;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "the_environment_names_the_library"]).env(CHILD, "1");
    command.env("TILEWRIGHT_LIBCUDA", stub_file()).env("TILEWRIGHT_STUB_CUDA", "version=12040,devices=3");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn devices_and_properties() {
    let driver = Stub::new("devices=2,capability=8.6").open().unwrap();
    assert_eq!(driver.num_devices(), 2);
    let device = driver.device(1).unwrap();
    assert_eq!((device.ordinal(), device.capability()), (1, Capability { major: 8, minor: 6 }));
    let properties = device.properties().unwrap();
    assert_eq!(properties.name, "Stub GPU");
    assert_eq!((properties.multiprocessors, properties.warp_size, properties.memory), (132, 32, 80 << 30));
    assert_eq!(
        (properties.shared_memory_per_block, properties.shared_memory_per_block_optin),
        (49152, 232_448)
    );
    assert_eq!((properties.clock_rate, properties.memory_bus_width), (1_980_000, 5120));
    assert!(properties.has_cooperative_launch && !properties.has_clusters && !properties.has_tensor_maps);
    let error = driver.device(2).unwrap_err();
    assert_eq!(error.to_string(), "there is no GPU 2: the driver finds 2 GPUs, counted from 0");
}

#[test]
fn a_device_before_sm_75_is_refused() {
    for (capability, is_supported) in [("7.0", false), ("7.2", false), ("7.5", true), ("12.1", true)] {
        let device = Stub::new(&format!("capability={capability}")).open().unwrap().device(0).unwrap();
        assert_eq!(Context::primary(device).is_ok(), is_supported, "{capability}");
    }
    let device = Stub::new("capability=7.0").open().unwrap().device(0).unwrap();
    let error = Context::current_or_primary(device).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GPU 0 (Stub GPU) has compute capability 7.0 (sm_70); 7.5 (sm_75) or newer is needed"
    );
    assert!(error.is_unavailable());
}

#[test]
fn the_callers_context_stays_current() {
    let stub = Stub::new("devices=2,record=1");
    let driver = stub.open().unwrap();
    let [first, second] = [0, 1].map(|ordinal| Context::primary(driver.device(ordinal).unwrap()).unwrap());
    assert_eq!((stub.current_context(), Context::current(driver).unwrap()), (0, None));

    // The first context that a thread without a context uses becomes current, as in torch.
    let buffer = DeviceBuffer::new(second, 16).unwrap();
    assert_eq!((stub.current_context(), Context::current(driver).unwrap()), (0x2000, Some(second)));

    // A current context stays current, even after work in other contexts.
    first.make_current().unwrap();
    buffer.read(&mut [0; 16]).unwrap();
    second.synchronize().unwrap();
    let module = module(second);
    let launch = module.function("scale").unwrap().configure(LaunchOptions::new(32)).unwrap();
    launch.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap();
    assert_eq!(stub.current_context(), 0x1000);
    assert!(stub.take_launches()[0].contains("context=0x2000"));
    stub.configure("devices=2,fail=cuLaunchKernel:700");
    launch.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap_err();
    drop((launch, module, buffer));
    assert_eq!(stub.current_context(), 0x1000);
    assert_eq!(Context::current_or_primary(driver.device(1).unwrap()).unwrap(), first);

    // Each thread has its own current context.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(Context::current_or_primary(driver.device(1).unwrap()).unwrap(), second);
            assert_eq!(stub.current_context(), 0x2000);
        });
    });
    assert_eq!(stub.current_context(), 0x1000);
}

#[test]
fn memory_streams_and_events() {
    let stub = Stub::new("");
    let context = stub.context();
    let mut buffer = DeviceBuffer::from_bytes(context, b"0123456789").unwrap();
    assert_eq!((buffer.len(), buffer.address() % 256), (10, 0));
    let mut bytes = [0; 10];
    buffer.write(b"abc").unwrap();
    buffer.read(&mut bytes).unwrap();
    assert_eq!(&bytes, b"abc3456789");
    let stream = Stream::new(context).unwrap();
    let mut copy = DeviceBuffer::new(context, 12).unwrap();
    copy.fill_async(b'.', stream.borrow()).unwrap();
    copy.copy_from(&buffer, 4, stream.borrow()).unwrap();
    stream.synchronize().unwrap();
    copy.read(&mut bytes).unwrap();
    assert_eq!(&bytes, b"abc3......");
    buffer.fill(7).unwrap();
    buffer.read(&mut bytes).unwrap();
    assert_eq!(bytes, [7; 10]);
    let error = buffer.write(&[0; 11]).unwrap_err();
    assert_eq!(error, Error::CopyTooLarge { bytes: 11, capacity: 10 });
    assert_eq!(copy.copy_from(&buffer, 11, stream.borrow()).unwrap_err(), error);

    let empty = DeviceBuffer::from_bytes(context, &[]).unwrap();
    assert_eq!((empty.address(), empty.is_empty()), (0, true));

    let ends = [0, 9, 10].map(|offset| context.is_mapped(buffer.address() + offset).unwrap());
    assert_eq!(ends, [true, true, false]);

    let [start, end] = [(); 2].map(|()| Event::new(context).unwrap());
    start.record(stream.borrow()).unwrap();
    end.record(stream.borrow()).unwrap();
    end.synchronize().unwrap();
    end.block(StreamRef::DEFAULT).unwrap();
    assert!(start.milliseconds_until(&end).unwrap() >= 0.0);
    assert!(!context.is_capturing(stream.borrow()).unwrap());
    stub.configure("capturing=1,fail=cuMemAlloc_v2:2");
    assert!(context.is_capturing(stream.borrow()).unwrap());
    assert_eq!(
        DeviceBuffer::new(context, 64).unwrap_err().to_string(),
        "a buffer of 64 bytes: cuMemAlloc_v2 returns CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; the memory of the GPU is \
         full: `nvidia-smi` lists who uses it"
    );
}

#[test]
fn what_is_dropped_is_freed() {
    let stub = Stub::new("");
    let context = stub.context();
    let module = module(context);
    let function = module.function("scale").unwrap();
    let values =
        (DeviceBuffer::new(context, 8).unwrap(), Stream::new(context).unwrap(), Event::new(context).unwrap());
    assert_eq!(stub.count_live(), 4);
    drop((values, module));
    assert_eq!(stub.count_live(), 1, "a kernel keeps its module");
    let launch = function.configure(LaunchOptions::new(1)).unwrap();
    drop(function);
    assert_eq!(stub.count_live(), 1, "and so does a launch");
    drop(launch);
    assert_eq!(stub.count_live(), 0);
}

#[test]
fn a_driver_without_the_version_of_the_ptx_or_without_its_assembler_says_so_in_a_line() {
    let check = |words: &str, expect: &str| {
        let stub = Stub::new("version=11080");
        let context = stub.context();
        stub.configure(&format!("version=11080,{words}"));
        let error = assemble(context, "scale", PTX, AssembleOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), expect);
        error.is_unavailable()
    };
    let is_unavailable = check(
        "fail=cuLinkAddData_v2:222",
        "kernel `scale`: the NVIDIA driver is too old: it supports CUDA 11.8, which does not know PTX 7.8, the version that this \
         GPU needs; update the driver",
    );
    assert!(is_unavailable);
    let is_unavailable = check(
        "fail=cuLinkCreate_v2:221",
        "kernel `scale`: cuLinkCreate_v2 returns CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): PTX JIT compiler library not found; \
         libnvidia-ptxjitcompiler.so.1, a part of the driver, is missing: install it, or map it into the container",
    );
    assert!(!is_unavailable);
}

#[test]
fn the_assembler_gets_its_options_and_gives_its_log() {
    let context = Stub::new("").context();
    let assembled = assemble(context, "scale", PTX, AssembleOptions::default()).unwrap();
    let text = String::from_utf8_lossy(&assembled.cubin).into_owned();
    assert!(text.contains(PTX) && text.contains("// 7=4\n"), "{text}");
    let options = AssembleOptions {
        optimization_level: 1,
        max_registers: Some(64),
        line_info: true,
        debug_info: true,
        asynchronous: false,
    };
    let assembled = assemble(context, "scale", PTX, options).unwrap();
    assert!(String::from_utf8_lossy(&assembled.cubin).contains("// 7=1 0=64 13=1 11=1\n"));

    let error = assemble(context, "scale", ".version 7.8\nsyntax error", options).unwrap_err();
    let cause = CallError {
        call: "cuLinkAddData_v2",
        code: 218,
        name: "CUDA_ERROR_INVALID_PTX".into(),
        text: "a PTX JIT compilation failed".into(),
        context: String::new(),
    };
    let log = "ptxas application ptx input, line 2; fatal   : syntax error".to_owned();
    assert_eq!(error, Error::Assembler { kernel: "scale".into(), log, cause: Box::new(cause) });
    assert_eq!(
        error.to_string(),
        "kernel `scale`: the driver's assembler refuses the PTX: cuLinkAddData_v2 returns CUDA_ERROR_INVALID_PTX (218): \
         a PTX JIT compilation failed\nptxas application ptx input, line 2; fatal   : syntax error"
    );

    let short = format!("{PTX}// too few registers");
    let assembled = assemble(context, "scale", &short, options).unwrap();
    assert!(assembled.log.contains("are serialized"), "{}", assembled.log);
    let options = AssembleOptions { asynchronous: true, ..options };
    let error = assemble(context, "scale", &short, options).unwrap_err();
    assert_eq!(error, Error::SerializedWgmma { kernel: "scale".into() });
    assert!(assemble(context, "scale", PTX, options).is_ok());

    let error = assemble(context, "scale", "a\0b", options).unwrap_err();
    assert_eq!(error, Error::InvalidName { name: "a\0b".into() });
}

#[test]
fn modules_and_their_kernels() {
    let stub = Stub::new("registers=40,local=24,shared=128,threads=640");
    let context = stub.context();
    let cubin = assemble(context, "scale", PTX, AssembleOptions::default()).unwrap().cubin;
    let scale = Module::load(context, "scale", &cubin).unwrap().function("scale").unwrap();
    let attributes = scale.attributes();
    assert_eq!((attributes.registers, attributes.spills(), attributes.shared_bytes), (40, 6, 128));
    assert_eq!((attributes.max_threads_per_block, attributes.binary_version), (640, 90));
    assert_eq!(scale.max_active_blocks(256, 0).unwrap(), 8);
    // A block cannot have 300 KiB of shared memory. Expected: an error.
    assert_eq!(scale.max_active_blocks(256, 100 << 10).unwrap(), 2);
    let error = scale.max_active_blocks(256, 300 << 10).unwrap_err();
    assert!(matches!(error, Error::OutOfSharedMemory { .. }), "{error}");
    let error = Module::load(context, "scale", &cubin).unwrap().function("other").unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `other`: cuModuleGetFunction returns CUDA_ERROR_NOT_FOUND (500): named symbol not found"
    );
    for (image, reason) in
        [(&cubin[..cubin.len() - 1], "it is cut off"), (b"\xff\xfe", "it is neither a cubin nor PTX")]
    {
        let error = Module::load(context, "scale", image).unwrap_err();
        assert_eq!(error, Error::InvalidImage { kernel: "scale".into(), reason });
    }
}

#[test]
fn launches_arrive_as_they_were_asked_for() {
    let stub = Stub::new("record=1");
    let context = stub.context();
    let ptx = PTX.replace(
        "scale()",
        "scale(.param .u64 a, .param .u8 b, .param .s32 c, .param .b16 d, .param .f64 e)",
    );
    let scale = Module::load(context, "scale", ptx.as_bytes()).unwrap().function("scale").unwrap();
    assert_eq!(scale.attributes().parameter_bytes, Some(32));
    let mut parameters = Parameters::new();
    parameters.push([u64::MAX; 5]).clear();
    parameters.push(0x1122_3344_5566_7788_u64).push(1_u8).push(-2_i32).push(3_u16).push(1.5_f64);
    let plain = scale.configure(LaunchOptions::new(128)).unwrap();
    // SAFETY: the stub does not dereference the handle of a stream.
    #[expect(unsafe_code, reason = "the number of a stream")]
    let stream = unsafe { StreamRef::from_raw(0xabc0) };
    plain.launch([3, 2, 1], stream, parameters.as_bytes()).unwrap();
    let options = LaunchOptions {
        threads: [32, 2, 4],
        shared_bytes: 1000,
        cluster: [2, 1, 1],
        programmatic: true,
        cooperative: true,
    };
    let special = scale.configure(options).unwrap();
    special.launch([4, 1, 1], StreamRef::DEFAULT, &[7; 32]).unwrap();
    assert_eq!(
        stub.take_launches(),
        [
            "scale grid=[3, 2, 1] block=[128, 1, 1] shared=0 stream=0xabc0 context=0x1000 attributes=[] \
             parameters=8877665544332211\
             01000000feffffff\
             0300000000000000\
             000000000000f83f",
            "scale grid=[4, 1, 1] block=[32, 2, 4] shared=1000 stream=0x0 context=0x1000 \
             attributes=[4: [2, 1, 1], 6: [1, 0, 0], 2: [1, 0, 0]] \
             parameters=0707070707070707070707070707070707070707070707070707070707070707",
        ]
    );
    assert_eq!(special.max_active_clusters().unwrap(), 66);
    for found in [0, 31, 33] {
        let error = plain.launch([1; 3], StreamRef::DEFAULT, &[0; 64][..found]).unwrap_err();
        assert_eq!(error, Error::WrongParameters { kernel: "scale".into(), found, expected: 32 });
    }
}

/// A parameter with an alignment above 16 bytes is aligned in the constant bank.
#[test]
fn parameters_with_a_large_alignment_lie_where_the_driver_says() {
    let context = Stub::new("").context();
    let ptx = PTX.replace("scale()", "scale(.param .u64 a, .param .u32 b, .param .align 64 .b8 c[128])");
    let scale = Module::load(context, "scale", ptx.as_bytes()).unwrap().function("scale").unwrap();
    let offsets: Vec<_> = (0..3).map(|index| scale.parameter_offset(index).unwrap()).collect();
    assert_eq!((&*offsets, scale.attributes().parameter_bytes), (&[0, 8, 48][..], Some(176)));
    let error = scale.parameter_offset(3).unwrap_err();
    assert_eq!(error.to_string(), "kernel `scale`: there is no parameter 3: it has 3, counted from 0");
}

#[test]
fn grids_have_limits_and_may_be_empty() {
    let stub = Stub::new("record=1");
    let scale = module(stub.context()).function("scale").unwrap().configure(LaunchOptions::new(32)).unwrap();
    let launch = |grid| scale.launch(grid, StreamRef::DEFAULT, &[]);
    for grid in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [u32::MAX, 0, 1]] {
        launch(grid).unwrap();
    }
    assert_eq!(stub.take_launches(), [""; 0]);
    launch([i32::MAX as u32, 65535, 65535]).unwrap();
    for (grid, axis, limit) in
        [([1 << 31, 1, 1], 0, i32::MAX as u32), ([1, 65536, 1], 1, 65535), ([1, 1, 65536], 2, 65535)]
    {
        let expect = Error::GridTooLarge { kernel: "scale".into(), axis, extent: grid[axis], limit };
        assert_eq!(launch(grid).unwrap_err(), expect);
    }
    assert_eq!(stub.take_launches().len(), 1);
}

#[test]
fn blocks_and_shared_memory_have_limits() {
    let stub = Stub::new("shared=1024,threads=640,record=1");
    let scale = module(stub.context()).function("scale").unwrap();
    for threads in [[0, 1, 1], [641, 1, 1], [32, 32, 1], [1 << 16, 1 << 16, 1]] {
        let options = LaunchOptions { threads, ..LaunchOptions::new(1) };
        let expect = Error::InvalidBlock { kernel: "scale".into(), threads, limit: 640 };
        assert_eq!(scale.configure(options).unwrap_err(), expect);
    }
    let with = |shared_bytes| LaunchOptions { shared_bytes, ..LaunchOptions::new(640) };
    let limit = 227 << 10;
    // Like the driver, the stub rejects more than 48 KiB without an opt-in.
    let large = scale.configure(with(limit - 1024)).unwrap();
    let small = scale.configure(with(49152)).unwrap();
    for launch in [&large, &small, &large] {
        launch.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap();
    }
    assert_eq!(stub.take_launches().len(), 3);
    let error = scale.configure(with(limit - 1023)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `scale`: out of resource: shared memory, 232449 bytes are required, the limit of a block is 232448; \
         reduce block sizes or `num_stages`"
    );
}

#[test]
fn a_failed_launch_names_the_kernel_and_says_that_the_context_is_lost() {
    let stub = Stub::new("");
    let scale = module(stub.context()).function("scale").unwrap();
    let cluster = LaunchOptions { cluster: [2, 1, 1], ..LaunchOptions::new(32) };
    let (plain, cluster) =
        (scale.configure(LaunchOptions::new(32)).unwrap(), scale.configure(cluster).unwrap());
    stub.configure("fail=cuLaunchKernel:700,fail=cuLaunchKernelEx:1");
    assert_eq!(
        plain.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap_err().to_string(),
        "kernel `scale`: cuLaunchKernel returns CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was \
         encountered; this launch or an earlier one failed on the device, and CUDA is unusable in this process"
    );
    assert_eq!(
        cluster.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap_err().to_string(),
        "kernel `scale`: cuLaunchKernelEx returns CUDA_ERROR_INVALID_VALUE (1): invalid argument"
    );
}

#[test]
fn every_call_may_fail() {
    // Each call of the driver fails with each code. Expected: the error names the call.
    let stub = Stub::new("");
    let driver = stub.open().unwrap();
    let path = || -> Result<(), Error> {
        let context = Context::current_or_primary(driver.device(0)?)?;
        let module = Module::load(context, "scale", PTX.as_bytes())?;
        let large = LaunchOptions { shared_bytes: 100_000, cluster: [16, 1, 1], ..LaunchOptions::new(32) };
        let launch = module.function("scale")?.configure(large)?;
        let mut buffer = DeviceBuffer::from_bytes(context, &[1, 2])?;
        let stream = Stream::new(context)?;
        buffer.fill_async(1, stream.borrow())?;
        launch.launch([16, 1, 1], stream.borrow(), &[])?;
        context.set_printf_fifo_size(1 << 21)?;
        // Restores the size for the next run of `path`.
        context.set_printf_fifo_size(1 << 20)?;
        buffer.read(&mut [0])?;
        stream.synchronize()?;
        context.memory_info()?;
        context.synchronize()
    };
    path().unwrap();
    for call in [
        "cuCtxGetCurrent",
        "cuCtxGetDevice",
        "cuLinkCreate_v2",
        "cuLinkAddData_v2",
        "cuLinkComplete",
        "cuLinkDestroy",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuFuncGetAttribute",
        "cuFuncSetAttribute",
        "cuFuncSetCacheConfig",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD_v2",
        "cuMemsetD8Async",
        "cuMemcpyDtoH_v2",
        "cuStreamCreate",
        "cuStreamSynchronize",
        "cuCtxSetLimit",
        "cuMemGetInfo_v2",
        "cuCtxSynchronize",
        "cuLaunchKernelEx",
    ] {
        stub.configure(&format!("fail={call}:999"));
        let error = path().unwrap_err();
        let (Error::Call(cause) | Error::Assembler { cause, .. }) = error else { panic!("{call}: {error}") };
        assert_eq!((cause.call, cause.code), (call, 999));
    }
    stub.configure("");
    path().unwrap();
}

#[test]
fn tensor_maps() {
    // No context is current on this thread. Expected: `encode` makes one current.
    let context = Context::primary(Stub::new("").open().unwrap().device(0).unwrap()).unwrap();
    let mut source = TensorMapSource {
        element: TensorMapElement::BF16,
        address: 0x4000,
        shape: &[256, 100],
        strides: &[512],
        block: &[64, 64],
        ..TensorMapSource::default()
    };
    let map = TensorMap::encode(context, &source).unwrap();
    let mut parameters = Parameters::new();
    parameters.push(1_u8).push_tensor_map(&map, 64);
    let words: Vec<u64> = parameters.as_bytes()[64..]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!((words.len(), &words[..5]), (16, &[0x4000, 9, 2, 256, 100][..]));
    source.strides = &[520];
    let error = TensorMap::encode(context, &source).unwrap_err();
    assert_eq!(error, Error::TensorMap(TensorMapRule::Stride { axis: 1, found: 520, multiple: 16 }));
    assert_eq!(
        error.to_string(),
        "invalid tensor map: the stride of axis 1 is 520 bytes, and it has to be a multiple of 16 below 2^40"
    );
}

#[test]
fn tensor_maps_of_windows() {
    let context = Context::primary(Stub::new("").open().unwrap().device(0).unwrap()).unwrap();
    let source = TensorMapSource {
        element: TensorMapElement::F16,
        address: 0x4000,
        shape: &[64, 30, 20, 8],
        strides: &[128, 3840, 76800],
        ..TensorMapSource::default()
    };
    let window = TensorMapWindow { lower: &[-1, -2], upper: &[-1, -1], channels: 64, pixels: 128 };
    let map = TensorMap::encode_im2col(context, &source, &window).unwrap();
    let words: Vec<u64> =
        map.as_bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[..7], [0x4000, 6, 4, 64, 128, u64::MAX, u64::MAX - 1]);
    let error =
        TensorMap::encode_im2col(context, &source, &TensorMapWindow { pixels: 0, ..window }).unwrap_err();
    assert_eq!(error.to_string(), "invalid tensor map: a copy has 0 pixels, and 1 to 1024 are allowed");
}

#[test]
fn values_go_to_any_thread() {
    fn check<T: Send + Sync>() {}
    check::<Driver>();
    check::<Context>();
    check::<Module>();
    check::<tilewright_cuda::LaunchConfiguration>();
    check::<DeviceBuffer>();
    check::<Stream>();
    check::<Event>();
    check::<Error>();

    let stub = Stub::new("record=1");
    let scale = module(stub.context()).function("scale").unwrap().configure(LaunchOptions::new(32)).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| scale.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap()));
        }
    });
    assert_eq!(stub.take_launches().len(), 80);
}
