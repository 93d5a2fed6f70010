//! The GPU path: random kernels leave the same in memory on the CPU and, as PTX, in the simulator, which finds no fault.
//!
//! Kernels are made of tiles of random shapes, integers and floats without rounding, moved between threads in every way:
//! reductions, broadcasts, transpositions, reshapes, gathers, loops that carry tiles, branches.

use std::fmt::Write;

use tilewright_cpu::memory::Region;
use tilewright_gpu::Target;
use tilewright_ir::parse;

/// A small random number generator (`SplitMix64`).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The elements of the input, a power of two, and of the output.
const INPUT: usize = 1024;
const OUTPUT: usize = 1 << 15;

/// A tile: its name, element type and shape.
#[derive(Clone)]
struct Tile {
    name: String,
    element: &'static str,
    shape: Vec<usize>,
}

impl Tile {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn ty(&self) -> String {
        format!("{}{:?}", self.element, self.shape)
    }
}

/// A kernel under construction, as text.
struct Kernel {
    random: Random,
    text: String,
    count: usize,
    tiles: Vec<Tile>,
    /// The next free element of the output.
    free: usize,
    depth: usize,
}

const LOAD: &str = "{cache = \"\", eviction = \"\", volatile = false}";
const ELEMENTS: [&str; 5] = ["int32", "fp32", "int8", "int64", "uint16"];

impl Kernel {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "  {text}").expect("a string takes it");
    }

    fn define(&mut self, op: &str, element: &'static str, shape: &[usize]) -> Tile {
        self.count += 1;
        let tile = Tile { name: format!("%v{}", self.count), element, shape: shape.to_vec() };
        let text = format!("{} = {op} : {}", tile.name, tile.ty());
        self.line(&text);
        tile
    }

    fn constant(&mut self, value: i64, element: &'static str, shape: &[usize]) -> Tile {
        self.count += 1;
        let name = format!("%c{}", self.count);
        let literal = if element == "fp32" { format!("{value}.0") } else { value.to_string() };
        let text = format!("{name} = constant {{value = {literal}:{element}}} : {element}");
        self.line(&text);
        self.define(&format!("splat {name} {{shape = {shape:?}}}"), element, shape)
    }

    /// The row-major number of each element of a shape, plus an offset.
    fn numbers(&mut self, shape: &[usize], offset: usize) -> Tile {
        let count = shape.iter().product();
        let flat =
            self.define(&format!("arange {{start = {offset}, end = {}}}", offset + count), "int32", &[count]);
        self.define(&format!("reshape {} {{shape = {shape:?}}}", flat.name), "int32", shape)
    }

    fn pointers(&mut self, argument: &str, element: &'static str, offsets: &Tile) -> String {
        let shape = format!("{:?}", offsets.shape);
        self.count += 1;
        let n = self.count;
        let text = format!("%b{n} = splat {argument} {{shape = {shape}}} : *{element}{shape}");
        self.line(&text);
        let text = format!("%p{n} = ptr_add %b{n}, {} : *{element}{shape}", offsets.name);
        self.line(&text);
        format!("%p{n}")
    }

    fn shape(&mut self) -> Vec<usize> {
        let rank = self.random.below(3) + 1;
        let mut left = 1 << self.random.below(11);
        let mut shape: Vec<usize> = (1..rank)
            .map(|_| {
                let extent = (1 << self.random.below(6)).min(left);
                left /= extent;
                extent
            })
            .collect();
        shape.push(left);
        shape
    }

    /// Reads the input in order, or at indices that are computed.
    fn load(&mut self) {
        let shape = self.shape();
        let mut offsets = self.numbers(&shape, 0);
        if self.random.below(2) == 0 {
            let factor = self.random.pick(&[3, 5, -7, 64]);
            let factor = self.constant(factor, "int32", &shape);
            offsets = self.define(&format!("mul {}, {}", offsets.name, factor.name), "int32", &shape);
        }
        let last = self.constant(INPUT as i64 - 1, "int32", &shape);
        let inside = self.define(&format!("and {}, {}", offsets.name, last.name), "int32", &shape);
        let (argument, element) =
            self.random.pick(&[("%ints", "int32"), ("%floats", "fp32"), ("%bytes", "int8")]);
        let pointers = self.pointers(argument, element, &inside);
        let mask = if self.random.below(2) == 0 {
            let bound = self.random.below(1100) as i64;
            let bound = self.constant(bound, "int32", &shape);
            let mask = self.define(&format!("lt {}, {}", inside.name, bound.name), "int1", &shape);
            let other = self.constant(-3, element, &shape);
            format!(", {}, {}", mask.name, other.name)
        } else {
            String::new()
        };
        let tile = self.define(&format!("load {pointers}{mask} {LOAD}"), element, &shape);
        self.tiles.push(tile);
    }

    fn tile(&mut self) -> Tile {
        let count = self.tiles.len();
        let index = count - 1 - self.random.below(count).min(self.random.below(count));
        self.tiles[index].clone()
    }

    /// A tile brought to a shape and an element type.
    fn fitted(&mut self, element: &'static str, shape: &[usize]) -> Tile {
        let mut tile = self.tile();
        if tile.element != element {
            let attributes = format!("{{element = {element}, rounding = \"rtne\"}}");
            tile = self.define(&format!("cast {} {attributes}", tile.name), element, &tile.shape.clone());
        }
        if tile.shape == shape {
            return tile;
        }
        let elements: usize = shape.iter().product();
        if tile.elements() == elements {
            return self.define(&format!("reshape {} {{shape = {shape:?}}}", tile.name), element, shape);
        }
        self.constant(2, element, shape)
    }

    fn elementwise(&mut self) {
        let x = self.tile();
        let y = self.fitted(x.element, &x.shape);
        let functions: &[&str] = if x.element == "fp32" {
            &["min", "max", "max_nan", "min_nan"]
        } else {
            &["add", "sub", "mul", "min", "max", "and", "or", "xor", "int_div", "int_rem", "shl", "shr"]
        };
        let function = self.random.pick(functions);
        let tile = if self.random.below(5) == 0 {
            let mask = self.define(&format!("lt {}, {}", x.name, y.name), "int1", &x.shape);
            self.define(&format!("select {}, {}, {}", mask.name, x.name, y.name), x.element, &x.shape)
        } else {
            self.define(&format!("{function} {}, {}", x.name, y.name), x.element, &x.shape)
        };
        self.tiles.push(tile);
    }

    fn cast(&mut self) {
        let x = self.tile();
        let element = self.random.pick(&ELEMENTS);
        let tile = self.fitted(element, &x.shape);
        self.tiles.push(tile);
    }

    /// A reduction, whose result is spread over the axis again.
    fn reduce(&mut self) {
        let x = self.tile();
        let axis = self.random.below(x.shape.len());
        let mut shape = x.shape.clone();
        shape.remove(axis);
        if shape.is_empty() {
            return;
        }
        let function = if x.element == "fp32" { "max" } else { self.random.pick(&["add", "min", "xor"]) };
        let Tile { element, .. } = x;
        let n = self.count;
        let region = format!(
            "(%x{n}: {element}, %y{n}: {element}) {{\n    %z{n} = {function} %x{n}, %y{n} : {element}\n    \
             yield_values %z{n}\n  }}"
        );
        let sum = self.define(&format!("reduce {} {{axis = {axis}}} {region}", x.name), element, &shape);
        let mut unit = shape.clone();
        unit.insert(axis, 1);
        let kept = self.define(&format!("expand_dims {} {{axis = {axis}}}", sum.name), element, &unit);
        let spread =
            self.define(&format!("broadcast {} {{shape = {:?}}}", kept.name, x.shape), element, &x.shape);
        self.tiles.extend([sum, spread]);
    }

    fn transpose(&mut self) {
        let x = self.tile();
        let mut permutation: Vec<usize> = (0..x.shape.len()).collect();
        let turns = self.random.below(x.shape.len());
        permutation.rotate_left(turns);
        let shape: Vec<usize> = permutation.iter().map(|&axis| x.shape[axis]).collect();
        let tile = self.define(
            &format!("transpose {} {{permutation = {permutation:?}}}", x.name),
            x.element,
            &shape,
        );
        self.tiles.push(tile);
    }

    /// A loop that carries a tile, or a branch that chooses one.
    fn control(&mut self) {
        if self.depth == 2 {
            return;
        }
        let x = self.tile();
        self.count += 1;
        let n = self.count;
        let (outer, before) = (std::mem::take(&mut self.text), self.tiles.clone());
        self.depth += 1;
        let is_loop = self.random.below(2) == 0;
        if is_loop {
            self.tiles.push(Tile { name: format!("%carried{n}"), ..x.clone() });
        }
        self.statements(3);
        let next = self.fitted(x.element, &x.shape);
        self.depth -= 1;
        let body = std::mem::replace(&mut self.text, outer);
        self.tiles = before;
        let ty = x.ty();
        let text = if is_loop {
            format!(
                "%v{n} = for_loop %zero, %three, %one, {} {{options = \"stages=0 unroll=0\"}} \
                 (%i{n}: int32, %carried{n}: {ty}) {{\n{body}    yield_values {}\n  }} : {ty}",
                x.name, next.name
            )
        } else {
            format!(
                "%v{n} = if_else %odd () {{\n{body}    yield_values {}\n  }} () {{\n    yield_values {}\n  }} : {ty}",
                next.name, x.name
            )
        };
        self.line(&text);
        self.tiles.push(Tile { name: format!("%v{n}"), ..x });
    }

    fn store(&mut self) {
        let tile = self.tile();
        let value = self.fitted_to(&tile);
        let offset = self.free;
        self.free += value.elements();
        if self.free > OUTPUT {
            return;
        }
        let offsets = self.numbers(&value.shape, offset);
        let pointers = self.pointers("%out", "int32", &offsets);
        let text = format!("store {pointers}, {} {{cache = \"\", eviction = \"\"}}", value.name);
        self.line(&text);
    }

    /// A tile as int32.
    fn fitted_to(&mut self, tile: &Tile) -> Tile {
        match tile.element {
            "int32" => tile.clone(),
            "fp32" => {
                self.define(&format!("bitcast {} {{element = int32}}", tile.name), "int32", &tile.shape)
            }
            _ => {
                let attributes = "{element = int32, rounding = \"rtne\"}";
                self.define(&format!("cast {} {attributes}", tile.name), "int32", &tile.shape)
            }
        }
    }

    fn statements(&mut self, most: usize) {
        for _ in 0..=self.random.below(most) {
            match self.random.below(12) {
                0 | 1 => self.load(),
                2 => self.reduce(),
                3 => self.transpose(),
                4 => self.cast(),
                5 | 6 => self.control(),
                _ => self.elementwise(),
            }
        }
    }
}

/// The text of the kernel with this seed.
fn kernel(seed: u64) -> String {
    let text = "kernel func0 @k(%ints: *int32 {divisibility = 16}, %floats: *fp32 {divisibility = 16}, \
                %bytes: *int8, %out: *int32 {divisibility = 16}, %n: int32) {\n"
        .to_owned();
    let mut kernel = Kernel { random: Random(seed), text, count: 0, tiles: Vec::new(), free: 0, depth: 0 };
    for (name, value) in [("zero", 0), ("one", 1), ("three", 3)] {
        kernel.line(&format!("%{name} = constant {{value = {value}:int32}} : int32"));
    }
    kernel.line("%odd = lt %zero, %n : int1");
    kernel.load();
    kernel.statements(10);
    for _ in 0..4 {
        kernel.store();
    }
    kernel.text + "  return_values\n}\n"
}

/// The memory that the kernels read and write.
fn memory(seed: u64) -> [Vec<u8>; 4] {
    let mut random = Random(seed);
    let ints = (0..INPUT).flat_map(|_| ((random.bits() as i32) >> 20).to_le_bytes()).collect();
    let floats =
        (0..INPUT).flat_map(|_| ((random.below(4001) as f32 - 2000.0) / 8.0).to_le_bytes()).collect();
    let bytes = (0..INPUT).map(|_| random.bits() as u8).collect();
    [ints, floats, bytes, vec![0; OUTPUT * 4]]
}

fn on_cpu(text: &str, seed: u64) -> Vec<u8> {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut tensors = memory(seed);
    let program = tilewright_cpu::Program::new(&module).expect("it can be lowered");
    let mut arguments: Vec<tilewright_cpu::Argument<'_>> = tensors
        .iter_mut()
        .map(|bytes| {
            let region = Region::of(bytes);
            tilewright_cpu::Argument::Pointer { address: region.address(), region }
        })
        .collect();
    arguments.push(tilewright_cpu::Argument::Scalar(seed % 2));
    let launch = tilewright_cpu::Launch {
        grid: [1, 1, 1],
        arguments: &arguments,
        foreign: &[],
        threads: 1,
        interrupt: tilewright_cpu::Interrupt::Never,
    };
    program.launch(&launch).unwrap_or_else(|error| panic!("{error:#?}\n{text}"));
    let [.., out] = tensors;
    out
}

/// What the kernel leaves in the simulator; nothing if the GPU path refuses it.
fn in_simulator(text: &str, seed: u64, target: &str, warps: u32) -> Option<Vec<u8>> {
    let mut module = parse(text).expect("it was parsed before");
    tilewright_opt::optimize(&mut module, &tilewright_opt::Options::default(), &mut |_, _| {});
    let plan = tilewright_gpu::plan(&module, Target::named(target).expect("it is one"), warps).ok()?;
    let ptx = tilewright_ptx::lower(&plan).ok()?;
    let ptx = tilewright_ptx::isa::print(&ptx);
    let device = tilewright_sim::Target::new(target).expect("the simulator has it");
    let loaded =
        tilewright_sim::Simulator::new(device).load(&ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let mut tensors = memory(seed);
    let regions: Vec<_> = tensors.iter_mut().map(|bytes| tilewright_sim::Region::of(bytes)).collect();
    let mut parameters: Vec<u8> = regions.iter().flat_map(|region| region.address().to_le_bytes()).collect();
    parameters.extend(((seed % 2) as u32).to_le_bytes());
    let mut launch = tilewright_sim::Launch::new("k", [1, 1, 1], [warps * 32, 1, 1], &parameters, &regions);
    launch.dynamic_shared_bytes = plan.shared_bytes;
    loaded.launch(&launch).unwrap_or_else(|fault| panic!("seed {seed}, {target}: {fault}\n{text}\n{ptx}"));
    let [.., out] = tensors;
    Some(out)
}

#[test]
fn kernels_leave_the_same_on_the_cpu_and_in_the_simulator() {
    bolero::check!().with_type::<u64>().for_each(|&seed| {
        let text = kernel(seed);
        let expected = on_cpu(&text, seed);
        for (target, warps) in [("sm_80", 1 << (seed % 4)), ("sm_90a", 4)] {
            let Some(found) = in_simulator(&text, seed, target, warps) else { continue };
            let place = expected.chunks(4).zip(found.chunks(4)).position(|(a, b)| a != b);
            assert_eq!(place, None, "seed {seed}, {target}, {warps} warps:\n{text}");
        }
    });
}

#[test]
fn few_kernels_are_refused() {
    let refused = (0..100).filter(|&seed| in_simulator(&kernel(seed), seed, "sm_80", 4).is_none()).count();
    assert!(refused <= 5, "{refused} of 100 kernels are refused");
}

#[test]
fn numbers_that_wrap_around_are_not_taken_to_be_equal() {
    // An int8 that a subtraction takes around, and a comparison that its range would decide if it did not.
    let seed = 4_898_739_067_013_228_994;
    let text = kernel(seed);
    assert!(in_simulator(&text, seed, "sm_80", 4) == Some(on_cpu(&text, seed)), "{text}");
}
