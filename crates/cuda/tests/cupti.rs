//! Tests CUPTI with the stub library of `crates/cuda/stub`.
//!
//! Each time must belong to its launch. A process opens CUPTI once, so tests that open another
//! library run in their own processes.

#![allow(clippy::unwrap_used, reason = "an error is a failed test")]

#[expect(dead_code, reason = "these tests need a part of it")]
mod common;

use std::process::Command;
use std::{env, thread};

use common::{Stub, module};
use tilewright_cuda::{Cupti, LaunchOptions, StreamRef, Version};

const CHILD: &str = "TILEWRIGHT_CUPTI_TEST_CHILD";
const VERSION: Version = Version { major: 12, minor: 8 };

/// Returns true in the child process. Otherwise, runs a test in a child process with these
/// variables.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test]).env(CHILD, "1").env_remove("TRITON_CUPTI_LIB_PATH");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    false
}

#[test]
fn launches_have_the_times_of_their_kernels() {
    // With few records in a buffer, one launch has records in several buffers.
    for records in ["records=0", "records=1", "records=2", "records=3"] {
        if is_child("launches_have_the_times_of_their_kernels", &[("STUB_WORDS", records)]) {
            let stub = Stub::new(&env::var("STUB_WORDS").unwrap());
            // SAFETY: this test is the only one of its process.
            #[expect(unsafe_code, reason = "no other thread reads the environment")]
            unsafe {
                env::set_var("TILEWRIGHT_CUPTI", &stub.file);
            }
            launches(&stub);
            return;
        }
    }
}

fn launches(stub: &Stub) {
    let scale = module(stub.context()).function("scale").unwrap().configure(LaunchOptions::new(128)).unwrap();
    let launch = || scale.launch([8, 1, 1], StreamRef::DEFAULT, &[]).unwrap();
    let cupti = Cupti::get(VERSION, &[]).unwrap();
    assert_eq!(cupti.library(), stub.file.display().to_string());
    // Earlier launches are not recorded.
    launch();
    cupti.start().unwrap();
    let begun = cupti.clock().unwrap();
    for number in [70, 71] {
        cupti.push(number).unwrap();
        launch();
        cupti.pop();
    }
    // This launch has no id, like a launch of another library.
    launch();
    thread::scope(|scope| {
        scope.spawn(|| {
            cupti.push(1 << 40).unwrap();
            launch();
            cupti.pop();
        });
    });
    let taken = cupti.take().unwrap();
    assert_eq!(taken.iter().map(|time| time.number).collect::<Vec<_>>(), [70, 71, 1 << 40]);
    assert!(taken.iter().all(|time| time.end - time.start == 1500));
    let starts: Vec<u64> = taken.iter().map(|time| time.start - begun).collect();
    assert_eq!(starts, [10_000, 20_000, 40_000]);
    assert_eq!(cupti.take().unwrap(), []);
    cupti.stop();
    cupti.push(1).unwrap();
    launch();
    cupti.pop();
    assert_eq!(cupti.take().unwrap(), []);
}

#[test]
fn what_is_missing_is_said_in_a_line() {
    if is_child("what_is_missing_is_said_in_a_line", &[("TILEWRIGHT_CUPTI", "no/such/libcupti.so")]) {
        let error = Cupti::get(VERSION, &[]).unwrap_err();
        assert!(error.starts_with("`no/such/libcupti.so` cannot be opened ("), "{error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn it_can_be_switched_off() {
    if is_child("it_can_be_switched_off", &[("TILEWRIGHT_CUPTI", "off")]) {
        assert_eq!(Cupti::get(VERSION, &[]).unwrap_err(), "TILEWRIGHT_CUPTI switches CUPTI off");
    }
}

#[test]
fn a_library_without_the_functions_is_refused() {
    if cfg!(target_os = "linux")
        && is_child("a_library_without_the_functions_is_refused", &[("TILEWRIGHT_CUPTI", "libc.so.6")])
    {
        let error = Cupti::get(VERSION, &[]).unwrap_err();
        assert_eq!(error, "`libc.so.6` has no function `cuptiActivityRegisterCallbacks`");
    }
}

#[test]
fn what_cupti_refuses_is_said() {
    let stub = common::stub_file();
    let variables = [
        ("TILEWRIGHT_CUPTI", stub.to_str().unwrap()),
        ("TILEWRIGHT_STUB_CUDA", "fail=cuptiActivityEnable:35"),
    ];
    if is_child("what_cupti_refuses_is_said", &variables) {
        let error = Cupti::get(VERSION, &[]).unwrap().start().unwrap_err();
        assert!(error.ends_with("returns CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"), "{error}");
    }
}
