//! Partitions: none waits for the block, and tiles stay in their partition. A named barrier has as
//! many threads as the partitions that reach it.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::SlotAnalysis;
use crate::{GpuOp, Header, Op};

/// Checks the partitions of a function.
pub fn check(header: &Header, analysis: &SlotAnalysis<'_>) -> Check {
    let function = analysis.function;
    let mut result = Ok(());
    function.walk(function.entry, &mut |inst| {
        if result.is_err() {
            return;
        }
        result = match &function.insts[inst].op {
            Op::Gpu(GpuOp::WarpSpecialize { warps, .. }) => partitions(analysis, inst, warps),
            Op::Gpu(GpuOp::NamedBarrier { barrier, threads })
                if analysis.partition(inst).is_none() && *threads != header.num_warps * 32 =>
            {
                Err(format!(
                    "named_barrier {barrier} outside of partitions is for {threads} of {} threads",
                    header.num_warps * 32
                ))
            }
            // tidy: wildcard because other ops have no partitions
            _ => Ok(()),
        }
        .inspect_err(|_| analysis.blame(inst));
    });
    result
}

/// The threads and partitions of the waits at each named barrier.
type Uses = BTreeMap<u32, BTreeSet<(u32, usize)>>;

fn partitions(analysis: &SlotAnalysis<'_>, inst: Inst, warps: &[i64]) -> Check {
    let regions = &analysis.function.insts[inst].regions;
    let mut uses = Uses::new();
    for (partition, region) in regions.iter().enumerate() {
        let mut inside = BTreeSet::new();
        blocks(analysis, *region, &mut inside);
        let mut result = Ok(());
        analysis.function.walk(*region, &mut |inner| {
            if result.is_ok() {
                result = instruction(analysis, inner, partition, &inside, &mut uses)
                    .inspect_err(|_| analysis.blame(inner));
            }
        });
        result?;
    }
    for (barrier, users) in uses {
        let partitions: BTreeSet<usize> = users.iter().map(|(_, partition)| *partition).collect();
        let come: i64 = partitions.iter().map(|partition| warps[*partition] * 32).sum();
        if let Some((threads, _)) = users.iter().find(|(threads, _)| i64::from(*threads) != come) {
            return Err(format!(
                "named_barrier {barrier} is for {threads} threads, and the partitions that reach it have \
                 {come}"
            ));
        }
    }
    Ok(())
}

fn blocks(analysis: &SlotAnalysis<'_>, block: Block, all: &mut BTreeSet<Block>) {
    all.insert(block);
    for inst in &analysis.function.blocks[block].insts {
        for region in &analysis.function.insts[*inst].regions {
            blocks(analysis, *region, all);
        }
    }
}

fn instruction(
    analysis: &SlotAnalysis<'_>,
    inst: Inst,
    partition: usize,
    inside: &BTreeSet<Block>,
    uses: &mut Uses,
) -> Check {
    let data = &analysis.function.insts[inst];
    let is_outside = |value: &&ir::Value| !inside.contains(&analysis.block_of(**value));
    let is_tile = |value: &&ir::Value| {
        let ty = analysis.function.ty(**value);
        ty.as_registers().is_some() && ty.layout().is_some()
    };
    if let Some(tile) = data.operands.iter().filter(is_tile).find(is_outside) {
        let text = analysis.text(*tile);
        return Err(format!(
            "{} in partition {partition} uses the outer tile {text}, which other warps hold too: pass it \
             through shared memory",
            data.op.name()
        ));
    }
    match &data.op {
        Op::Tile(ir::Op::Barrier {}) => {
            Err(format!("a barrier of the block is in partition {partition}: use a named_barrier"))
        }
        Op::Gpu(GpuOp::WarpSpecialize { .. }) => {
            Err(format!("warp_specialize is nested in partition {partition}"))
        }
        Op::Gpu(GpuOp::NamedBarrier { barrier, threads }) => {
            uses.entry(*barrier).or_default().insert((*threads, partition));
            Ok(())
        }
        // tidy: wildcard because other ops concern a single warp
        _ => Ok(()),
    }
}
