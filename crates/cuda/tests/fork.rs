//! Tests that each call in a forked child returns [`Error::Forked`].
//!
//! A fork copies only the calling thread, so the file has only one test.
#![cfg(unix)]
#![expect(unsafe_code, reason = "a fork")]

#[expect(dead_code, reason = "this test needs a part of it")]
mod common;

use common::{Stub, module};
use tilewright_cuda::{Context, DeviceBuffer, Driver, Error, LaunchOptions, StreamRef};

#[test]
fn after_a_fork_every_call_is_an_error() {
    let stub = Stub::new("");
    let context = stub.context();
    let launch = module(context).function("scale").unwrap().configure(LaunchOptions::new(32)).unwrap();
    let mut buffer = DeviceBuffer::new(context, 8).unwrap();
    // SAFETY: the child only calls the driver, compares results, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let results = [
            launch.launch([1; 3], StreamRef::DEFAULT, &[]),
            buffer.write(&[1]),
            Context::current(context.driver()).map(drop),
            context.synchronize(),
            Driver::open(Some(&stub.file)).map(drop),
        ];
        let is_right = results.iter().all(|result| *result == Err(Error::Forked));
        drop((launch, buffer));
        // SAFETY: the call ends the child without the exit handlers of the parent.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: this process created the child. The system writes an int through the pointer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended with {status:#x}");

    // The parent can still use CUDA.
    launch.launch([1; 3], StreamRef::DEFAULT, &[]).unwrap();
    buffer.write(&[1]).unwrap();
    let text = Error::Forked.to_string();
    assert!(text.contains("`spawn`") && !text.contains('\n'), "{text}");
}
