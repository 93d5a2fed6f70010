//! The header of a module: its target, its launch, its layouts and its tensor maps.
//!
//! ```text
//! gpu sm_90a, 4 warps, 32768 bytes of shared memory
//! L0 = [128] register (1) (2) lane (4) (8) (16) (32) (64) warp (0) (0)
//! ```
//! The first line may continue with:
//!
//! | text | meaning |
//! |---|---|
//! | `, 3 stages` | loops are not pipelined yet; a loop that does not set its stages gets 3 |
//! | `, no contraction` | no multiplication is fused with an addition: each is rounded |
//! | `, synchronized` | a pass has inserted all barriers: there is one at each point where threads must wait for each other |
//! | `, explicit` | the program states its layouts, copies and `mbarrier`s: passes that choose them do not run; barriers of the block are still inserted |
//! | `, cluster pairs` | the launch may put two neighboring programs into one cluster |
//! | `, clusters of 2` | the two blocks of a cluster compute one program together |
//! | `, longest CTA first by descending id` | programs with a larger index along the first axis start first, because they take longest |
//! | `, 2 blocks a multiprocessor` | the registers of a thread are limited so that two blocks fit on a multiprocessor |
//!
//! The tensor maps ([`TensorMapPlan`]) follow the layouts. Maps of the launch (`T0 = …`) precede
//! those of the kernel (`M0 = …`). The arguments of a map are `p0`, `p1`, …. In a `T` map, they are
//! those of the kernel. In an `M` map, they are the operands of `make_tensor_map` after the buffer.

use std::fmt::Write;

use super::layouts::Layouts;
use super::tensor_maps::TensorMapPlan;
use crate::target::{GpuTarget, MAX_WARPS};

/// The order in which the programs of a grid start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ProgramOrder {
    /// The order of the blocks, the first axis fastest.
    #[default]
    AsLaunched,
    /// Programs with a smaller index along the first axis start first.
    AscendingIds,
    /// Programs with a larger index along the first axis start first.
    DescendingIds,
}

/// The largest value of `stages` and of `min_blocks`. A multiprocessor holds at most 32 blocks.
const MAX_COUNT: u32 = tilewright_ir::LoopOptions::MAX_STAGES;

const ASCENDING_IDS: &str = "longest CTA first by ascending id";
const DESCENDING_IDS: &str = "longest CTA first by descending id";

/// The header of a module.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts about the module")]
pub struct Header {
    /// The GPU architecture.
    pub target: GpuTarget,
    /// The warps of a block: a power of two, or the sum over partitions.
    pub num_warps: u32,
    /// The shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The stages of loops without their own number; 0 after software pipelining.
    pub stages: u32,
    /// Allows a multiplication and an addition to become one `fma`.
    pub contraction: bool,
    /// True if a pass has inserted all barriers. The verifier then reports missing ones.
    pub synchronized: bool,
    /// True if the program states its layouts, copies and `mbarrier`s. Passes choose none, but
    /// still insert barriers of the block.
    pub explicit: bool,
    /// Allows a launch in pairs: clusters of two blocks. The kernel then has one more parameter:
    /// the number of programs along the first axis, or 0 without pairs. Blocks past the last
    /// program do nothing.
    pub paired: bool,
    /// The blocks that the register limit lets fit; 0 without a limit.
    pub min_blocks: u32,
    /// The blocks that compute one program as a cluster; 1 without clusters. The grid has this many
    /// blocks along the first axis for each program.
    pub cluster: u32,
    /// The order in which programs start.
    pub order: ProgramOrder,
    /// The layouts that types name.
    pub layouts: Layouts,
    /// The tensor maps that the launch makes. They are the kernel's last parameters.
    pub tensor_maps: Vec<TensorMapPlan>,
    /// The tensor maps that the kernel makes by `make_tensor_map`. Their arguments are that op's
    /// operands after the buffer.
    pub made_maps: Vec<TensorMapPlan>,
}

impl Default for Header {
    fn default() -> Self {
        Self::new(GpuTarget::ALL[0], 4)
    }
}

impl Header {
    /// Returns the header of a kernel for a target, with `num_warps` warps in a block.
    pub fn new(target: GpuTarget, num_warps: u32) -> Self {
        Self {
            target,
            num_warps,
            shared_bytes: 0,
            stages: 0,
            contraction: true,
            synchronized: false,
            explicit: false,
            paired: false,
            min_blocks: 0,
            cluster: 1,
            order: ProgramOrder::AsLaunched,
            layouts: Layouts::default(),
            tensor_maps: Vec::new(),
            made_maps: Vec::new(),
        }
    }

    /// Returns the number of blocks that fill a buffer together. It is the cluster size, or 2 with
    /// pairs.
    pub fn sharing_blocks(&self) -> u32 {
        self.cluster.max(2)
    }

    /// Returns the text of the header, as whole lines.
    pub fn print(&self) -> String {
        let Self { target, num_warps, shared_bytes, stages, contraction, .. } = self;
        let Self { synchronized, explicit, paired, min_blocks, cluster, order, layouts, .. } = self;
        let stages = if *stages == 0 { String::new() } else { format!(", {stages} stages") };
        let contraction = if *contraction { "" } else { ", no contraction" };
        let synchronized = if *synchronized { ", synchronized" } else { "" };
        let explicit = if *explicit { ", explicit" } else { "" };
        let paired = if *paired { ", cluster pairs" } else { "" };
        let cluster = if *cluster == 1 { String::new() } else { format!(", clusters of {cluster}") };
        let order = match order {
            ProgramOrder::AsLaunched => String::new(),
            ProgramOrder::AscendingIds => format!(", {ASCENDING_IDS}"),
            ProgramOrder::DescendingIds => format!(", {DESCENDING_IDS}"),
        };
        let blocks =
            if *min_blocks == 0 { String::new() } else { format!(", {min_blocks} blocks a multiprocessor") };
        let mut text = format!(
            "gpu {}, {num_warps} warps, {shared_bytes} bytes of shared memory{stages}{contraction}{synchronized}{explicit}{paired}{cluster}{order}{blocks}\n",
            target.name
        );
        for (id, layout) in layouts.iter() {
            writeln!(text, "{id} = {layout}").expect("writing to a string does not fail");
        }
        for (letter, maps) in [('T', &self.tensor_maps), ('M', &self.made_maps)] {
            for (number, map) in maps.iter().enumerate() {
                writeln!(text, "{letter}{number} = {map}").expect("writing to a string does not fail");
            }
        }
        text
    }

    /// Reads the text of a header.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let expected = "expected `gpu sm_90a, 4 warps, 0 bytes of shared memory`";
        let first = lines.next().and_then(|line| line.strip_prefix("gpu ")).ok_or(expected)?;
        let mut parts = first.split(", ");
        let target = GpuTarget::named(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
        let mut number = |unit: &str| {
            let part = parts.next().and_then(|part| part.strip_suffix(unit));
            part.and_then(|number| number.parse::<u32>().ok()).ok_or(expected)
        };
        let num_warps = number(" warps")?;
        let shared_bytes = number(" bytes of shared memory")?;
        let (mut stages, mut min_blocks, mut cluster) = (0, 0, 1);
        let (mut contraction, mut synchronized, mut explicit, mut paired) = (true, false, false, false);
        let mut order = ProgramOrder::AsLaunched;
        for word in parts {
            match word {
                "no contraction" if contraction => contraction = false,
                "synchronized" if !synchronized => synchronized = true,
                "explicit" if !explicit => explicit = true,
                "cluster pairs" if !paired => paired = true,
                ASCENDING_IDS if order == ProgramOrder::AsLaunched => order = ProgramOrder::AscendingIds,
                DESCENDING_IDS if order == ProgramOrder::AsLaunched => order = ProgramOrder::DescendingIds,
                _ if cluster == 1 && word.starts_with("clusters of ") => {
                    cluster = word["clusters of ".len()..].parse().map_err(|_| expected)?;
                }
                _ => {
                    let counts = [(" stages", &mut stages), (" blocks a multiprocessor", &mut min_blocks)];
                    let counted =
                        counts.into_iter().find_map(|(what, count)| Some((word.strip_suffix(what)?, count)));
                    let parsed = counted.and_then(|(number, count)| Some((number.parse().ok()?, count)));
                    match parsed {
                        Some((number, count)) if *count == 0 && (1..=MAX_COUNT).contains(&number) => {
                            *count = number;
                        }
                        _ => return Err(expected.into()),
                    }
                }
            }
        }
        if !(1..=16).contains(&cluster) {
            return Err(format!("a cluster must have 1 to 16 blocks, found {cluster}"));
        }
        if !(1..=MAX_WARPS).contains(&num_warps) {
            return Err(format!("a block must have 1 to {MAX_WARPS} warps, found {num_warps}"));
        }
        let (mut layouts, mut tensor_maps, mut made_maps) = (Layouts::default(), Vec::new(), Vec::new());
        for line in lines {
            let (name, layout) = line.split_once(" = ").ok_or("expected `L0 = [..]`, or a function")?;
            if let Some(letter) = ["T", "M"].into_iter().find(|letter| name.starts_with(letter)) {
                let maps = if letter == "T" { &mut tensor_maps } else { &mut made_maps };
                let map = TensorMapPlan::parse(layout).filter(TensorMapPlan::is_consistent);
                let map = map.ok_or_else(|| format!("{name}: expected a tensor map, found `{layout}`"))?;
                let next = format!("{letter}{}", maps.len());
                if name != next {
                    return Err(format!("tensor maps are numbered in order: expected {next}, found {name}"));
                }
                maps.push(map);
                continue;
            }
            let layout = layout.parse().map_err(|error| format!("{name}: {error}"))?;
            let next = layouts.iter().count();
            let id = layouts.add(layout);
            if id.to_string() != name || id.as_u32() as usize != next {
                return Err(format!("{name}: layouts are numbered in order, and none is listed twice"));
            }
        }
        let head = Self { target, num_warps, shared_bytes, stages, contraction, ..Self::default() };
        Ok(Self {
            synchronized,
            explicit,
            paired,
            min_blocks,
            cluster,
            order,
            layouts,
            tensor_maps,
            made_maps,
            ..head
        })
    }
}
