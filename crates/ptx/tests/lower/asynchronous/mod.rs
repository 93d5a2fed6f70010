//! Tests asynchronous programs in the text of the GPU dialect. Checks their PTX, and runs it in the
//! simulator.

mod copies;
mod flattened;
mod made_maps;
mod pairs;
mod partitions;
mod products;
mod refusals;
mod tensors;

use tilewright_gpu_ir::GpuTarget;
use tilewright_gpu_ir::{Gpu, Header, LayoutId, Layouts, Module, TensorMapPlan};
use tilewright_layout::{Layout, blocked};
use tilewright_sim::{LoadedModule, Region, Report};
use tilewright_testkit::Ptxas;

/// The target, warps, shared memory and layouts of a program.
pub struct Head {
    layouts: Layouts,
    target: &'static str,
    warps: u32,
    shared_bytes: u32,
    /// The tensor maps that the kernel makes.
    made_maps: Vec<TensorMapPlan>,
    /// The number of clusters of two blocks in a launch; 0 without clusters.
    pairs: u32,
}

impl Head {
    pub fn new(target: &'static str, warps: u32, shared_bytes: u32) -> Self {
        Self { layouts: Layouts::default(), target, warps, shared_bytes, made_maps: Vec::new(), pairs: 0 }
    }

    /// Makes launches run this number of pairs of blocks.
    pub fn of_pairs(self, pairs: u32) -> Self {
        Self { pairs, ..self }
    }

    /// Adds a layout to the program, and returns its id.
    pub fn add(&mut self, layout: Layout) -> LayoutId {
        self.layouts.add(layout)
    }

    /// Returns the program with this kernel. `Err` is the message of the verifier.
    pub fn parse(&self, kernel: &str) -> Result<Module, String> {
        let target = GpuTarget::named(self.target).expect("the tests name targets that there are");
        let mut header = Header::new(target, self.warps);
        (header.shared_bytes, header.layouts) = (self.shared_bytes, self.layouts.clone());
        header.made_maps.clone_from(&self.made_maps);
        header.paired = self.pairs > 0;
        let text = format!("{}{kernel}", header.print());
        tilewright_ir::parse_dialect::<Gpu>(&text).map_err(|error| format!("{error}\n{text}"))
    }

    /// Returns the PTX of a kernel. If NVIDIA's assembler is installed, also assembles it, without
    /// spills.
    pub fn lower(&self, kernel: &str) -> String {
        let module = self.parse(kernel).unwrap_or_else(|error| panic!("{error}"));
        let ptx = tilewright_ptx::lower(&module).unwrap_or_else(|error| panic!("{error:#?}"));
        let text = tilewright_ptx::isa::print(&ptx);
        if let Some(ptxas) = Ptxas::find_or_skip("asynchronous") {
            let assembled = ptxas.assemble(&text, self.target);
            let assembled = assembled.unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert!(assembled.usage.iter().all(|usage| usage.spill_stores == 0), "{:?}", assembled.usage);
        }
        text
    }

    /// Returns the message with which the verifier or the lowering refuses a kernel.
    pub fn refusal(&self, kernel: &str) -> String {
        match self.parse(kernel) {
            Ok(module) => tilewright_ptx::lower(&module).expect_err("it is refused").message.clone(),
            Err(message) => message,
        }
    }

    /// Runs a PTX text's first kernel in one block, or in pairs. `Err` is the fault.
    pub fn run(&self, text: &str, arguments: &mut [Argument<'_>]) -> Result<Report, String> {
        let loaded = self.load(text);
        let name = loaded.kernels().next().expect("there is a kernel").to_owned();
        self.launch(&loaded, &name, arguments)
    }

    /// Loads PTX into the simulator.
    pub fn load(&self, text: &str) -> LoadedModule {
        let device = tilewright_sim::SimTarget::new(self.target).expect("the simulator has the target");
        let loaded = tilewright_sim::Simulator::new(device).load(text);
        loaded.unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Runs a kernel in one block, or in pairs of blocks. `Err` is the fault.
    pub fn launch(
        &self,
        loaded: &LoadedModule,
        name: &str,
        arguments: &mut [Argument<'_>],
    ) -> Result<Report, String> {
        let places = loaded.parameters(name).unwrap_or_else(|fault| panic!("{fault}"));
        let mut parameters = vec![0; places.last().map_or(0, |last| last.offset + last.bytes)];
        let mut regions = Vec::new();
        let mut places = places.iter();
        for argument in arguments {
            let bytes = match argument {
                Argument::Memory(memory) => {
                    let region = Region::of(memory.bytes());
                    regions.push(region);
                    region.address().to_le_bytes().to_vec()
                }
                Argument::Hidden(memory) => {
                    regions.push(Region::of(memory.bytes()));
                    continue;
                }
                Argument::Int(value) => value.to_le_bytes().to_vec(),
            };
            let place = places.next().expect("the kernel has as many parameters");
            parameters[place.offset..][..bytes.len()].copy_from_slice(&bytes);
        }
        let mut launch =
            tilewright_sim::Launch::new(name, [1, 1, 1], [self.warps * 32, 1, 1], &parameters, &regions);
        if self.pairs > 0 {
            (launch.grid, launch.cluster) = ([2 * self.pairs, 1, 1], [2, 1, 1]);
        }
        launch.dynamic_shared_bytes = self.shared_bytes;
        loaded.launch(&launch).map_err(|fault| format!("{fault}"))
    }
}

/// An argument of a launch.
pub enum Argument<'a> {
    Memory(&'a mut Memory),
    /// Memory that is no parameter, for a tensor map.
    Hidden(&'a mut Memory),
    Int(i32),
}

/// Memory of the device, aligned as tensor maps are.
#[derive(Clone)]
pub struct Memory {
    store: Vec<u8>,
    start: usize,
    length: usize,
}

const ALIGNMENT: usize = 128;

impl Memory {
    pub fn new(bytes: &[u8]) -> Self {
        let store = vec![0; bytes.len() + ALIGNMENT];
        let start = store.as_ptr().align_offset(ALIGNMENT);
        let mut memory = Self { store, start, length: bytes.len() };
        memory.bytes().copy_from_slice(bytes);
        memory
    }

    pub fn zeros(length: usize) -> Self {
        Self::new(&vec![0; length])
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.store[self.start..][..self.length]
    }

    pub fn address(&mut self) -> u64 {
        self.bytes().as_ptr() as u64
    }

    pub fn floats(&mut self) -> Vec<f32> {
        self.bytes().as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }
}

/// Returns the bytes of fp32 numbers.
pub fn float_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Distributes rows over lanes and warps, with `width` elements of a row in a thread.
pub fn by_rows(shape: [u32; 2], width: u32, warps: u32) -> Layout {
    let across = (shape[1] / width).min(32);
    blocked(&shape, &[1, width], &[32 / across, across], &[warps, 1], &[1, 0])
}

/// Removes the line with index `number` among those with a word.
pub fn without(text: &str, word: &str, number: usize) -> String {
    let found: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| line.contains(word)).map(|(index, _)| index).collect();
    let removed =
        *found.get(number).unwrap_or_else(|| panic!("there is no {word} number {number} in\n{text}"));
    let lines = text.lines().enumerate().filter(|(index, _)| *index != removed);
    lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// Replaces the operands of the first instruction with an opcode.
pub fn with_operand(text: &str, opcode: &str, operands: &str) -> String {
    let start = text.find(opcode).unwrap_or_else(|| panic!("there is no {opcode} in\n{text}"));
    let line = text[start..].split(';').next().expect("an instruction ends");
    text.replacen(line, &format!("{opcode} {operands}"), 1)
}
