//! Tests a persistent matmul with fused loops, from its source to PTX. The simulator detects
//! mistakes in copies for the next tile and in releases of slots.

use tilewright_gpu::Launcher;
use tilewright_gpu_ir::GpuTarget;
use tilewright_sim::{Region, Swizzle, TensorDataType};

use super::tensors::map;
use super::{Memory, float_bytes, without};
use crate::common::kernel;

const ROWS: u32 = 64;
const COLUMNS: u32 = 64;
const DEPTH: u32 = 256;
const STEP: u32 = 32;
const TILES: u32 = 3;

/// The PTX, the box extents of A and B, and the bytes of shared memory.
struct Product {
    text: String,
    boxes: Vec<[u32; 2]>,
    warps: u32,
    shared_bytes: u32,
}

/// Compiles the persistent matmul. `factor`, after the dot, is empty or a multiplication, which
/// waits for the dot in each iteration. Threads store the result, because the store has a mask.
fn product(warps: u32, factor: &str) -> Product {
    let rows = ROWS * warps / 4;
    let source = format!(
        "
@triton.jit
def k(a, b, c, tiles, depth):
    rows, columns, steps = tl.arange(0, {rows}), tl.arange(0, {COLUMNS}), tl.arange(0, {STEP})
    for tile in tl.range(tl.program_id(0), tiles, 1, flatten=True):
        acc = tl.zeros(({rows}, {COLUMNS}), tl.float32)
        for i in range(0, depth, {STEP}):
            x = tl.load(a + (tile * {rows} + rows)[:, None] * {DEPTH} + (i + steps)[None, :])
            y = tl.load(b + (i + steps)[:, None] * {COLUMNS} + columns[None, :])
            acc = tl.dot(x, y, acc){factor}
        tl.store(c + columns[None, :] * {} + (tile * {rows} + rows)[:, None], acc, mask=acc == acc)
",
        rows * TILES
    );
    let module = kernel(&source, "*fp16:16, *fp16:16, *fp32:16, int32, int32");
    let target = GpuTarget::named("sm_90a").expect("the tests name targets that there are");
    let launcher = Launcher { makes_tensor_maps: true, ..Launcher::default() };
    let program = tilewright_gpu::compile_for(&module, target, warps, 3, launcher);
    let program = program.unwrap_or_else(|error| panic!("{error:#?}"));
    let boxes = program.header.tensor_maps.iter().map(|plan| {
        let copied = plan.copied.as_ref().expect("what is not copied is not passed");
        [copied.extents[1], copied.extents[0]]
    });
    let boxes = boxes.collect();
    let ptx = tilewright_ptx::lower(&program).unwrap_or_else(|error| panic!("{error:#?}"));
    let text = tilewright_ptx::isa::print(&ptx);
    Product { text, boxes, warps, shared_bytes: program.header.shared_bytes }
}

fn halves(count: u32) -> Vec<half::f16> {
    (0..count).map(|index| half::f16::from_f32((index * 37 % 19) as f32 - 9.0)).collect()
}

impl Product {
    /// Returns whether `text` computes the matmul with `depth` as K. `Err` is the fault.
    fn outcome(&self, text: &str, depth: u32) -> Result<bool, String> {
        let rows = ROWS * self.warps / 4 * TILES;
        let [a, b] = [rows * DEPTH, DEPTH * COLUMNS].map(halves);
        let bytes = |numbers: &[half::f16]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let mut operands = [&a, &b].map(|numbers| Memory::new(&bytes(numbers)));
        let mut c = Memory::new(&float_bytes(&vec![0.5; (rows * COLUMNS) as usize]));
        let extents = [[DEPTH, rows], [COLUMNS, DEPTH]];
        let mut maps = Vec::new();
        for ((memory, extents), boxes) in operands.iter_mut().zip(extents).zip(&self.boxes) {
            let swizzle = if boxes[0] == 64 { Swizzle::Bytes128 } else { Swizzle::Bytes64 };
            maps.push(map(memory, TensorDataType::F16, &extents.map(u64::from), boxes, swizzle));
        }
        let device = tilewright_sim::SimTarget::new("sm_90a").expect("the simulator has the target");
        let loaded = tilewright_sim::Simulator::new(device).load(text);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let places = loaded.parameters("k").unwrap_or_else(|fault| panic!("{fault}"));
        let mut parameters = vec![0; places.last().map_or(0, |last| last.offset + last.bytes)];
        let [first, second] = &mut operands;
        let regions = [first, second, &mut c].map(|memory| Region::of(memory.bytes()));
        let mut values: Vec<Vec<u8>> =
            regions.iter().map(|region| region.address().to_le_bytes().to_vec()).collect();
        values.extend([TILES, depth].map(|number| number.to_le_bytes().to_vec()));
        values.extend(maps.iter_mut().map(|map| map.bytes().to_vec()));
        assert_eq!(values.len(), places.len(), "{text}");
        for (place, value) in places.iter().zip(&values) {
            parameters[place.offset..][..place.bytes].copy_from_slice(&value[..place.bytes]);
        }
        let mut launch =
            tilewright_sim::Launch::new("k", [1, 1, 1], [self.warps * 32, 1, 1], &parameters, &regions);
        launch.dynamic_shared_bytes = self.shared_bytes;
        loaded.launch(&launch).map_err(|fault| format!("{fault}"))?;
        let at = |numbers: &[half::f16], place: u32| numbers[place as usize].to_f32();
        let is_right = |(place, found): (usize, f32)| {
            let (column, row) = (place as u32 / rows, place as u32 % rows);
            let products = (0..depth).map(|k| at(&a, row * DEPTH + k) * at(&b, k * COLUMNS + column));
            products.sum::<f32>() == found
        };
        Ok(c.floats().into_iter().enumerate().all(is_right))
    }

    /// Counts the lines with a word up to the end of the loop over tiles. Later lines are not
    /// needed: no thread waits for them.
    fn count(&self, word: &str) -> usize {
        let is_within = |line: &&str| !line.starts_with("$end_1:");
        self.text.lines().take_while(is_within).filter(|line| line.contains(word)).count()
    }

    /// Checks that each line with a word is needed, from index `first` on. Without it, the result
    /// is wrong or the simulator finds a fault.
    fn each_is_needed(&self, word: &str, first: usize) {
        assert!(self.count(word) > first, "{word}\n{}", self.text);
        for number in first..self.count(word) {
            let outcome = self.outcome(&without(&self.text, word, number), 4 * STEP);
            assert_ne!(outcome, Ok(true), "{word} {number}\n{}", self.text);
        }
    }
}

#[test]
fn tiles_of_any_number_of_iterations() {
    for (warps, factor) in [(4, ""), (8, ""), (4, " * 1.0"), (8, " * 1.0")] {
        let product = product(warps, factor);
        // The text fills three slots of two operands before the loops.
        let before = product.text.find("$loop").expect("there are loops");
        let copies = "cp.async.bulk.tensor.2d.shared::cluster.global";
        assert_eq!(product.text[..before].matches(copies).count(), 6);
        for iterations in 0..6 {
            let outcome = product.outcome(&product.text, iterations * STEP);
            assert_eq!(outcome, Ok(true), "{iterations}\n{}", product.text);
        }
    }
}

#[test]
fn each_mistake_is_found() {
    for (warps, factor) in [(4, ""), (8, ""), (4, " * 1.0")] {
        let product = product(warps, factor);
        product.each_is_needed("cp.async.bulk.tensor", 0);
        product.each_is_needed("mbarrier.arrive.expect_tx", 0);
        product.each_is_needed("wgmma.wait_group", 0);
        if warps == 4 {
            // There is one barrier of the block for each refill.
            product.each_is_needed("bar.sync", 0);
        } else {
            product.each_is_needed("mbarrier.arrive.shared", 0);
        }
    }
}
