//! Runs a target on many inputs. Reports the inputs that fail, and the locations of the failures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tilewright_fuzz::corpus::changes;
use tilewright_fuzz::random::chosen_seeds;
use tilewright_fuzz::tries_new_inputs;

/// A target, which takes an input and panics if it finds a bug.
pub type Target = fn(&[u8]);

/// A function that generates the bytes of an input from a seed.
pub type Input = fn(u64) -> Vec<u8>;

/// The stack size of a thread that tries inputs. A Python thread has this stack size.
const STACK: usize = 8 << 20;

/// Tries the default number of inputs, or the inputs that environment variables select.
#[track_caller]
pub fn hunt(count: u64, target: Target) {
    hunt_with(count, target, changes);
}

/// Does the same as [`hunt`], but `input` generates the inputs from seeds.
#[track_caller]
pub fn hunt_with(count: u64, target: Target, input: Input) {
    if let Some(seeds) = chosen_seeds() {
        return hunt_all(seeds, target, input);
    }
    std::thread::scope(|scope| {
        let run = || {
            if tries_new_inputs() {
                bolero::check!().for_each(target);
            } else {
                (0..count).for_each(|seed| target(&input(seed)));
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        let result = thread.expect("a thread begins").join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Tries the inputs of all seeds, and continues after failures. Lists the locations of the
/// failures.
fn hunt_all(seeds: std::ops::Range<u64>, target: Target, input: Input) {
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("").lines().next().unwrap_or("").to_owned();
        let place =
            info.location().map_or(String::new(), |place| format!("{}:{}", place.file(), place.line()));
        PANIC.set(format!("{place}: {message}"));
    }));
    // A thread that does not terminate cannot be stopped. Another thread then continues with the
    // next seed.
    let patience =
        std::env::var("TILEWRIGHT_PATIENCE").map_or(60, |seconds| seconds.parse().expect("seconds"));
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut next = seeds.start;
    while next < seeds.end {
        let (sender, receiver) = channel();
        let range = next..seeds.end;
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn(move || try_all((range, input), target, &sender)).expect("a thread begins");
        loop {
            match receiver.recv_timeout(Duration::from_secs(patience)) {
                Ok((seed, failure)) => {
                    if let Some(failure) = failure {
                        eprintln!("seed {seed}: {failure}");
                        found.entry(failure).or_default().push(seed);
                    }
                    next = seed + 1;
                    if next.is_multiple_of(1000) {
                        eprintln!("{next} seeds");
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("seed {next}: takes longer than {patience} s");
                    found.entry("takes too long".into()).or_default().push(next);
                    next += 1;
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }
    drop(std::panic::take_hook());
    let lines = found.iter().map(|(place, seeds)| {
        let first = &seeds[..seeds.len().min(8)];
        format!("{:6} times, {place}, seeds {first:?}", seeds.len())
    });
    let lines: Vec<String> = lines.collect();
    assert!(
        lines.is_empty(),
        "{} of {seeds:?} fail\n{}",
        found.values().map(Vec::len).sum::<usize>(),
        lines.join("\n")
    );
}

fn try_all(
    (seeds, input): (std::ops::Range<u64>, Input),
    target: Target,
    sender: &Sender<(u64, Option<String>)>,
) {
    for seed in seeds {
        let bytes = input(seed);
        let result = catch_unwind(AssertUnwindSafe(|| target(&bytes)));
        if sender.send((seed, result.is_err().then(|| PANIC.take()))).is_err() {
            return;
        }
    }
}
