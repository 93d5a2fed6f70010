//! Compares random kernels with fused loops and step by step, to the bit.

mod common;

use std::fmt::Write;

use common::{Arg, f32s, fused_program as program, int, run};
use tilewright_fuzz::random::Random;

/// The number of elements of a tile, and of the accessed memory.
const TILE: usize = 512;
const MEMORY: usize = 2048;

struct Kernel {
    random: Random,
    text: String,
    count: usize,
    tiles: Vec<String>,
    scalars: Vec<String>,
    /// True if all loads and stores access the same elements.
    in_place: bool,
}

impl Kernel {
    fn new(seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let in_place = seed % 3 == 2;
        let mut text = "kernel func0 @k(%in: *fp32, %out: *fp32, %n: int32) {\n".to_owned();
        write!(
            text,
            "  %i = arange {{start = 0, end = {TILE}}} : int32[{TILE}]\n  \
             %last = splat %n {{shape = [{TILE}]}} : int32[{TILE}]\n  \
             %m = lt %i, %last : int1[{TILE}]\n  \
             %end = constant {{value = {TILE}:int32}} : int32\n  \
             %ends = splat %end {{shape = [{TILE}]}} : int32[{TILE}]\n  \
             %back = sub %ends, %i : int32[{TILE}]\n  \
             %c = constant {{value = 1.5:fp32}} : fp32\n  \
             %lowest = constant {{value = 0xff800000:fp32}} : fp32\n"
        )
        .expect("a string takes it");
        let scalars = vec!["%c".to_owned(), "%lowest".to_owned()];
        Self { random, text, count: 0, tiles: Vec::new(), scalars, in_place }
    }

    fn define(&mut self, op: &str, is_tile: bool) -> String {
        self.count += 1;
        let name = format!("%v{}", self.count);
        let ty = if is_tile { format!("fp32[{TILE}]") } else { "fp32".to_owned() };
        writeln!(self.text, "  {name} = {op} : {ty}").expect("a string takes it");
        name
    }

    /// Returns pointers to a tile of an argument, ascending (`%i`) or descending (`%back`).
    fn pointers(&mut self, argument: &str, indices: &str) -> String {
        self.count += 1;
        let number = self.count;
        let offset = if self.in_place { 64 } else { self.random.pick(&[0, 64, 100, 512, 513, 1000]) };
        write!(
            self.text,
            "  %o{number} = constant {{value = {offset}:int32}} : int32\n  \
             %b{number} = ptr_add {argument}, %o{number} : *fp32\n  \
             %s{number} = splat %b{number} {{shape = [{TILE}]}} : *fp32[{TILE}]\n  \
             %p{number} = ptr_add %s{number}, {indices} : *fp32[{TILE}]\n"
        )
        .expect("a string takes it");
        format!("%p{number}")
    }

    fn splat(&mut self, scalar: &str) -> String {
        self.define(&format!("splat {scalar} {{shape = [{TILE}]}}"), true)
    }

    fn load(&mut self) {
        let argument = self.random.pick(&["%in", "%in", "%out"]);
        // A fused loop cannot read through descending pointers.
        let indices = self.random.pick(&["%i", "%i", "%i", "%back"]);
        let pointers = self.pointers(argument, indices);
        let rest = if self.random.below(2) == 0 {
            let other = self.random.pick(&["%c", "%lowest"]);
            let other = self.splat(other);
            format!(", %m, {other}")
        } else {
            String::new()
        };
        let attributes = "{cache = \"\", eviction = \"\", volatile = false}";
        let tile = self.define(&format!("load {pointers}{rest} {attributes}"), true);
        self.tiles.push(tile);
    }

    fn store(&mut self) {
        let pointers = self.pointers("%out", "%i");
        let tile = self.tile();
        let mask = self.random.pick(&["", ", %m"]);
        writeln!(self.text, "  store {pointers}, {tile}{mask} {{cache = \"\", eviction = \"\"}}")
            .expect("a string takes it");
    }

    /// Returns a tile: mostly the newest one, for large groups. With `in_place`, any tile, to read
    /// loaded tiles after later stores.
    fn tile(&mut self) -> String {
        let count = self.tiles.len();
        let is_newest = !self.in_place && self.random.below(3) != 0;
        let index = if is_newest { count - 1 } else { self.random.below(count) };
        self.tiles[index].clone()
    }

    fn operand(&mut self) -> String {
        if self.random.below(3) == 0 {
            let scalar = self.random.below(self.scalars.len());
            let scalar = self.scalars[scalar].clone();
            return self.splat(&scalar);
        }
        self.tile()
    }

    fn function(&mut self) {
        let x = self.tile();
        let op = match self.random.below(5) {
            0 => {
                let function =
                    self.random.pick(&["neg", "abs", "sqrt", "exp", "exp2", "log", "log2", "floor"]);
                format!("{function} {x}")
            }
            1 => {
                let other = self.operand();
                format!("select %m, {x}, {other}")
            }
            _ => {
                let function = self.random.pick(&["add", "sub", "mul", "div", "min", "max", "max_nan"]);
                let y = self.operand();
                if self.random.below(2) == 0 {
                    format!("{function} {x}, {y}")
                } else {
                    format!("{function} {y}, {x}")
                }
            }
        };
        let tile = self.define(&op, true);
        self.tiles.push(tile);
    }

    fn reduce(&mut self) {
        let tile = self.tile();
        let function = self.random.pick(&["add", "max", "max_nan", "min"]);
        self.count += 1;
        let n = self.count;
        writeln!(
            self.text,
            "  %v{n} = reduce {tile} {{axis = 0}} (%x{n}: fp32, %y{n}: fp32) {{\n    \
             %z{n} = {function} %x{n}, %y{n} : fp32\n    yield_values %z{n}\n  }} : fp32"
        )
        .expect("a string takes it");
        self.scalars.push(format!("%v{n}"));
    }

    fn finish(mut self) -> String {
        self.load();
        if self.in_place {
            self.load();
            self.load();
        }
        for _ in 0..self.random.below(14) + 3 {
            match self.random.below(10) {
                0 | 1 => self.load(),
                2 => self.store(),
                3 => self.reduce(),
                _ => self.function(),
            }
        }
        for _ in 0..3 {
            self.store();
        }
        self.text + "  return_values\n}\n"
    }
}

/// Returns numbers, including zeros of either sign, infinities and NaN.
fn memory(random: &mut Random, specials: bool) -> Vec<f32> {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, f32::MAX];
    (0..MEMORY)
        .map(|_| {
            if specials && random.below(50) == 0 {
                return random.pick(&special);
            }
            random.below(2000) as f32 / 100.0 - 10.0
        })
        .collect()
}

/// Replaces every NaN by the same NaN. The payload of a function of two NaN is unspecified.
fn without_payloads(args: &mut [Arg]) {
    for arg in args {
        if let Arg::Bytes(_) = arg {
            let numbers: Vec<f32> =
                arg.as_f32().into_iter().map(|x| if x.is_nan() { f32::NAN } else { x }).collect();
            *arg = f32s(&numbers);
        }
    }
}

#[test]
fn fused_groups_give_what_their_steps_give() {
    let mut with_groups = 0;
    for seed in 0..600 {
        let text = Kernel::new(seed).finish();
        with_groups += usize::from(program(&text).to_string().contains("fused {"));
        let mut random = Random(seed);
        let end = random.pick(&[0, 1, 63, 64, 65, 300, 448, 511, 512, 600]);
        let (input, output) = (memory(&mut random, seed % 2 == 1), memory(&mut random, false));
        let make = || vec![f32s(&input), f32s(&output), int(end)];
        let (mut fused, mut single) = (make(), make());
        common::launch(&program(&text), [3, 1, 1], &mut fused).unwrap_or_else(|error| panic!("{error:#?}"));
        common::launch(&common::dense_program(&text), [3, 1, 1], &mut single).expect("it runs");
        without_payloads(&mut fused);
        without_payloads(&mut single);
        for (fused, single) in fused.iter().zip(&single) {
            if let (Arg::Bytes(fused), Arg::Bytes(single)) = (fused, single) {
                let place = fused.chunks(4).zip(single.chunks(4)).position(|(a, b)| a != b);
                assert_eq!(place, None, "seed {seed}, mask below {end}:\n{text}\n{}", program(&text));
            }
        }
    }
    assert!(with_groups > 500, "{with_groups} of 600 programs have fused groups");
}

#[test]
fn a_load_does_not_move_past_a_later_store() {
    let pointers = |name: &str| {
        format!(
            "  %{name}s = splat %{name} {{shape = [512]}} : *fp32[512]\n  \
             %{name}p = ptr_add %{name}s, %i : *fp32[512]\n  \
             %{name}x = load %{name}p {{cache = \"\", eviction = \"\", volatile = false}} : fp32[512]\n"
        )
    };
    // `%q` depends on `%f`, which is stored to `%dp`, and on `%dx`, which is loaded from `%dp`.
    let text = format!(
        "kernel func0 @k(%d: *fp32, %e: *fp32) {{\n  \
         %i = arange {{start = 0, end = 512}} : int32[512]\n{}{}  \
         %f = sqrt %ex : fp32[512]\n  \
         %h = sqrt %f : fp32[512]\n  \
         %q = mul %dx, %f : fp32[512]\n  \
         store %dp, %h {{cache = \"\", eviction = \"\"}}\n  \
         store %ep, %q {{cache = \"\", eviction = \"\"}}\n  return_values\n}}\n",
        pointers("d"),
        pointers("e")
    );
    assert!(program(&text).to_string().contains("fused {"));
    let (d, e): (Vec<f32>, Vec<f32>) = (0..512).map(|i| (i as f32 - 7.0, i as f32 % 11.0)).unzip();
    let (roots, fourth_roots): (Vec<f32>, Vec<f32>) = e.iter().map(|e| (e.sqrt(), e.sqrt().sqrt())).unzip();
    let mut args = [f32s(&d), f32s(&e)];
    common::launch(&program(&text), [1, 1, 1], &mut args).expect("it runs");
    let products: Vec<f32> = d.iter().zip(&roots).map(|(d, root)| d * root).collect();
    assert_eq!((args[0].as_f32(), args[1].as_f32()), (fourth_roots, products));
}

#[test]
fn a_column_is_not_materialized_for_its_rows() {
    let text = "\
kernel func0 @k(%x: *fp32, %y: *fp32, %out: *fp32) {
  %i = arange {start = 0, end = 8} : int32[8]
  %j = arange {start = 0, end = 128} : int32[128]
  %width = constant {value = 128:int32} : int32
  %xs = splat %x {shape = [8]} : *fp32[8]
  %xp = ptr_add %xs, %i : *fp32[8]
  %column = load %xp {cache = \"\", eviction = \"\", volatile = false} : fp32[8]
  %rows = expand_dims %column {axis = 1} : fp32[8, 1]
  %all = broadcast %rows {shape = [8, 128]} : fp32[8, 128]
  %a = expand_dims %i {axis = 1} : int32[8, 1]
  %ws = splat %width {shape = [8, 1]} : int32[8, 1]
  %b = mul %a, %ws : int32[8, 1]
  %c = broadcast %b {shape = [8, 128]} : int32[8, 128]
  %d = expand_dims %j {axis = 0} : int32[1, 128]
  %e = broadcast %d {shape = [8, 128]} : int32[8, 128]
  %f = add %c, %e : int32[8, 128]
  %ys = splat %y {shape = [8, 128]} : *fp32[8, 128]
  %yp = ptr_add %ys, %f : *fp32[8, 128]
  %t = load %yp {cache = \"\", eviction = \"\", volatile = false} : fp32[8, 128]
  %u = sub %t, %all : fp32[8, 128]
  %v = exp %u : fp32[8, 128]
  %os = splat %out {shape = [8, 128]} : *fp32[8, 128]
  %op = ptr_add %os, %f : *fp32[8, 128]
  store %op, %v {cache = \"\", eviction = \"\"}
  return_values
}
";
    assert!(program(text).to_string().contains("fused {steps = 5}"), "{}", program(text));
    let mut random = Random(7);
    let (x, y) = (memory(&mut random, false), memory(&mut random, false));
    let mut args = [f32s(&x[..8]), f32s(&y[..1024]), f32s(&[0.0; 1024])];
    run(text, [1, 1, 1], &mut args);
    for (index, found) in args[2].as_f32().into_iter().enumerate() {
        let expected = f64::from(y[index] - x[index / 128]).exp();
        assert!((f64::from(found) / expected - 1.0).abs() < 2e-7, "{index}: {found} {expected}");
    }
}

#[test]
fn fused_exponentials_are_those_of_single_steps() {
    for function in ["exp", "exp2"] {
        let text = format!(
            "kernel func0 @k(%in: *fp32, %out: *fp32) {{\n  \
             %i = arange {{start = 0, end = 4096}} : int32[4096]\n  \
             %a = splat %in {{shape = [4096]}} : *fp32[4096]\n  \
             %p = ptr_add %a, %i : *fp32[4096]\n  \
             %x = load %p {{cache = \"\", eviction = \"\", volatile = false}} : fp32[4096]\n  \
             %y = {function} %x : fp32[4096]\n  \
             %b = splat %out {{shape = [4096]}} : *fp32[4096]\n  \
             %q = ptr_add %b, %i : *fp32[4096]\n  \
             store %q, %y {{cache = \"\", eviction = \"\"}}\n  return_values\n}}\n"
        );
        assert!(program(&text).to_string().contains("fused {steps = 3}"), "{}", program(&text));
        // Some blocks have only normal results, and others do not.
        let x: Vec<f32> = (0..4096).map(|i| (i as f32 - 2048.0) * 0.078_123).collect();
        let (mut fused, mut single) = ([f32s(&x), f32s(&x)], [f32s(&x), f32s(&x)]);
        common::launch(&program(&text), [3, 1, 1], &mut fused).expect("it runs");
        common::launch(&common::dense_program(&text), [3, 1, 1], &mut single).expect("it runs");
        let (fused, single) = (fused[1].as_f32(), single[1].as_f32());
        let place = fused.iter().zip(&single).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(place, None, "{function}");
        assert_eq!((single[0], single[4095]), (0.0, f32::INFINITY));
    }
}

#[test]
fn fused_quotients_are_those_of_single_steps() {
    let text = "\
kernel func0 @k(%in: *fp32, %out: *fp32, %d: fp32) {
  %i = arange {start = 0, end = 4096} : int32[4096]
  %a = splat %in {shape = [4096]} : *fp32[4096]
  %p = ptr_add %a, %i : *fp32[4096]
  %x = load %p {cache = \"\", eviction = \"\", volatile = false} : fp32[4096]
  %s = splat %d {shape = [4096]} : fp32[4096]
  %y = div %x, %s : fp32[4096]
  %b = splat %out {shape = [4096]} : *fp32[4096]
  %q = ptr_add %b, %i : *fp32[4096]
  store %q, %y {cache = \"\", eviction = \"\"}
  return_values
}
";
    let program = program(text);
    assert!(program.to_string().contains("fused {steps = 3}"), "{program}");
    let mut random = Random(11);
    let mut bits = |exponents: std::ops::Range<u32>| {
        let exponent = exponents.start + random.below(exponents.len()) as u32;
        let sign = (random.below(2) as u32) << 31;
        f32::from_bits(sign | exponent << 23 | random.below(1 << 23) as u32)
    };
    let special = [0.0, -0.0, 1e-40, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 1.0, -3.0];
    for round in 0..300 {
        // The first rounds have numbers of medium magnitude, and the last rounds any.
        let exponents = if round < 200 { 68..186 } else { 0..255 };
        let divisor = special.get(round).copied().unwrap_or_else(|| bits(exponents.clone()));
        let mut x: Vec<f32> = (0..4096).map(|_| bits(exponents.clone())).collect();
        if round % 3 == 0 {
            x[4000..4009].copy_from_slice(&special);
        }
        let mut args = [f32s(&x), f32s(&x), int(divisor.to_bits().into())];
        common::launch(&program, [1, 1, 1], &mut args).expect("it runs");
        for (&x, found) in x.iter().zip(args[1].as_f32()) {
            let expected = x / divisor;
            let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(is_same, "{x:e} / {divisor:e} is {expected:e}, not {found:e}");
        }
    }
}

#[test]
fn a_tile_used_before_and_after_a_reduction_is_loaded_twice() {
    let text = |load: &str| {
        format!(
            "kernel func0 @k(%in: *fp32, %out: *fp32, %n: int32) {{\n  \
             %i = arange {{start = 0, end = 512}} : int32[512]\n  \
             %last = splat %n {{shape = [512]}} : int32[512]\n  \
             %m = lt %i, %last : int1[512]\n  \
             %a = splat %in {{shape = [512]}} : *fp32[512]\n  \
             %p = ptr_add %a, %i : *fp32[512]\n  \
             %l = constant {{value = 0xff800000:fp32}} : fp32\n  \
             %o = splat %l {{shape = [512]}} : fp32[512]\n  \
             %x = load %p, %m, %o {{cache = \"\", eviction = \"\", volatile = {load}}} : fp32[512]\n  \
             %r = reduce %x {{axis = 0}} (%u: fp32, %v: fp32) {{\n    \
             %w = max %u, %v : fp32\n    yield_values %w\n  }} : fp32\n  \
             %s = splat %r {{shape = [512]}} : fp32[512]\n  \
             %y = sub %x, %s : fp32[512]\n  \
             %b = splat %out {{shape = [512]}} : *fp32[512]\n  \
             %q = ptr_add %b, %i : *fp32[512]\n  \
             store %q, %y, %m {{cache = \"\", eviction = \"\"}}\n  return_values\n}}\n"
        )
    };
    let loads = |text: &str| program(text).to_string().matches("= load").count();
    assert_eq!((loads(&text("false")), loads(&text("true"))), (2, 1), "{}", program(&text("false")));
    // Some cases have a zero as the maximum, a NaN, or no loaded element.
    for (first, end) in [(3.0, 512), (0.0, 512), (-0.0, 300), (f32::NAN, 511), (7.0, 1), (1.0, 0)] {
        let mut x: Vec<f32> = (0..512).map(|i| -0.0 - (i as f32 % 7.0)).collect();
        x[0] = first;
        let (mut fused, mut single) = ([f32s(&x), f32s(&x), int(end)], [f32s(&x), f32s(&x), int(end)]);
        common::launch(&program(&text("false")), [1, 1, 1], &mut fused).expect("it runs");
        common::launch(&common::dense_program(&text("false")), [1, 1, 1], &mut single).expect("it runs");
        let (fused, single) = (fused[1].as_f32(), single[1].as_f32());
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        assert_eq!(fused.iter().zip(&single).position(differs), None, "{first} {end}");
    }
}
