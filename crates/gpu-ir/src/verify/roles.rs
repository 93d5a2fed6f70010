//! Roles of warps: none waits for the whole block, named barriers have as many threads as the roles that come to them, and
//! tiles in registers stay in their role.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_ir as ir;
use tilewright_ir::{Block, Inst, Operation};

use crate::analysis::dataflow::Check;
use crate::analysis::slots::Names;
use crate::{GpuOp, Header, Op};

/// Checks the roles of a function.
pub fn check(header: &Header, names: &Names<'_>) -> Check {
    let function = names.function;
    let mut result = Ok(());
    function.walk(function.entry, &mut |inst| {
        if result.is_err() {
            return;
        }
        result = match &function.insts[inst].op {
            Op::Gpu(GpuOp::WarpRoles { warps, .. }) => roles(names, inst, warps),
            Op::Gpu(GpuOp::NamedBarrier { barrier, threads })
                if names.role(inst).is_none() && *threads != header.num_warps * 32 =>
            {
                Err(format!(
                    "named_barrier {barrier} outside of roles is for {threads} of {} threads",
                    header.num_warps * 32
                ))
            }
            // tidy: wildcard because other ops have no roles
            _ => Ok(()),
        };
    });
    result
}

/// The threads that a named barrier is for, and the roles that come to it.
type Uses = BTreeMap<u32, BTreeSet<(u32, usize)>>;

fn roles(names: &Names<'_>, inst: Inst, warps: &[i64]) -> Check {
    let regions = &names.function.insts[inst].regions;
    let mut uses = Uses::new();
    for (role, region) in regions.iter().enumerate() {
        let mut inside = BTreeSet::new();
        blocks(names, *region, &mut inside);
        let mut result = Ok(());
        names.function.walk(*region, &mut |inner| {
            if result.is_ok() {
                result = instruction(names, inner, role, &inside, &mut uses);
            }
        });
        result?;
    }
    for (barrier, users) in uses {
        let roles: BTreeSet<usize> = users.iter().map(|(_, role)| *role).collect();
        let come: i64 = roles.iter().map(|role| warps[*role] * 32).sum();
        if let Some((threads, _)) = users.iter().find(|(threads, _)| i64::from(*threads) != come) {
            return Err(format!(
                "named_barrier {barrier} is for {threads} threads, and the roles that come to it have {come}"
            ));
        }
    }
    Ok(())
}

fn blocks(names: &Names<'_>, block: Block, all: &mut BTreeSet<Block>) {
    all.insert(block);
    for inst in &names.function.blocks[block].insts {
        for region in &names.function.insts[*inst].regions {
            blocks(names, *region, all);
        }
    }
}

fn instruction(
    names: &Names<'_>,
    inst: Inst,
    role: usize,
    inside: &BTreeSet<Block>,
    uses: &mut Uses,
) -> Check {
    let data = &names.function.insts[inst];
    let is_outside = |value: &&ir::Value| !inside.contains(&names.block_of(**value));
    let is_tile = |value: &&ir::Value| {
        let ty = names.function.ty(**value);
        ty.as_registers().is_some() && ty.layout().is_some()
    };
    if let Some(tile) = data.operands.iter().filter(is_tile).find(is_outside) {
        let text = names.text(*tile);
        return Err(format!(
            "{} of role {role} uses the tile {text} of outside, which other warps hold too: hand it over in shared memory",
            data.op.name()
        ));
    }
    match &data.op {
        Op::Tile(ir::Op::Barrier {}) => {
            Err(format!("a barrier of the block stands in role {role}: use a named_barrier"))
        }
        Op::Gpu(GpuOp::WarpRoles { .. }) => Err(format!("warp_roles stands in role {role} of another")),
        Op::Gpu(GpuOp::NamedBarrier { barrier, threads }) => {
            uses.entry(*barrier).or_default().insert((*threads, role));
            Ok(())
        }
        // tidy: wildcard because other ops concern a single warp
        _ => Ok(()),
    }
}
