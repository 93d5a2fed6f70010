//! Tests the choices of tuners in a lock.
//!
//! A process can have only one lock, so this file has only one test.

use tilewright::runtime::Knobs;
use tilewright::{Code, Error, Kernel, Module, args, config, record_lock};

const SOURCE: &str = "
import triton
import triton.language as tl


@triton.jit
def accumulate(x_ptr, total_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    for _ in range(ROUNDS):
        x = tl.sort(x)
    tl.store(total_ptr, tl.load(total_ptr) + tl.sum(x))
";

fn kernel() -> Kernel {
    let module = Module::from_source("accumulate.py", SOURCE).expect("the source is valid");
    module.kernel("accumulate").expect("the module has the kernel")
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().and_then(|error| error.code())
}

#[test]
fn a_lock_has_the_choices_of_tuners() {
    let folder = std::env::temp_dir().join(format!("tilewright-tuning-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let lock = folder.join("tuned.lock");
    let x = vec![1.0_f32; 128];
    let launch = |configs: Vec<tilewright::Config>, n: usize| {
        let mut total = [0.0_f32];
        let tuner = kernel().tuned(configs, &["n"]);
        tuner.launch(|_| 1, args![&x, &mut total, n, BLOCK = 128])?;
        Ok::<_, Error>((total[0], tuner.choices()[0].1.clone()))
    };
    let configs = || vec![config! { ROUNDS = 30 }, config! { ROUNDS = 0 }];
    let first = kernel().tuned(configs(), &["n"]);
    // The tuner chooses before the recording, and launches a known choice in it.
    let warm = || first.launch(|_| 1, args![&x, &mut [0.0_f32], 100, BLOCK = 128]);
    warm().unwrap();
    record_lock(&lock, &[], || {
        launch(configs(), 90)?;
        warm()?;
        warm()
    })
    .unwrap();
    // On a busy machine, the slower configuration may be chosen.
    let chosen = first.choices()[0].1.clone();
    let other = if chosen["ROUNDS"] == 0 {
        config! { ROUNDS = 30 }
    } else {
        config! { ROUNDS = 0 }
    };
    let before = Knobs::clone(&Knobs::current());
    Knobs { lock: Some(lock), ..before.clone() }.set();
    let warmed = kernel().tuned(configs(), &["n"]);
    let mut unchanged = [0.0_f32];
    let result = warmed.launch(|_| 1, args![&x, &mut unchanged, 100, BLOCK = 128, warmup = true]);
    let (total, config) = launch(configs(), 100).unwrap();
    let measured_in_recording = launch(configs(), 90);
    let others = [launch(configs(), 99), launch(vec![other], 100)].map(code);
    before.set();
    result.expect("the lock has the chosen configuration");
    assert_eq!((&warmed.choices()[0].1["ROUNDS"], unchanged), (&chosen["ROUNDS"], [0.0]));
    assert_eq!((total, &config["ROUNDS"]), (100.0, &chosen["ROUNDS"]));
    assert_eq!(measured_in_recording.unwrap().0, 90.0);
    assert_eq!(others, [Some(Code::NotLocked); 2], "another key, and no such configuration");
    std::fs::remove_dir_all(folder).unwrap();
}
