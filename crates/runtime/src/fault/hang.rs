//! Names both sides of a hang: the warps that wait, and the ops for which they wait.

use tilewright_sim::{BarrierWait, Waiting};

use crate::Handle;

/// Returns a note for each wait for an `mbarrier`: who waits where, what is missing, and which ops
/// would end the wait.
pub(super) fn notes(waiting: &[Waiting], handle: &Handle) -> Vec<String> {
    let mut found: Vec<(&Waiting, &BarrierWait, Vec<u32>)> = Vec::new();
    for group in waiting {
        let Some(barrier) = &group.barrier else { continue };
        let is_same = |(other, wait, _): &&mut (&Waiting, &BarrierWait, Vec<u32>)| {
            *wait == barrier && other.block == group.block && other.location == group.location
        };
        match found.iter_mut().find(is_same) {
            Some((.., warps)) => warps.push(group.warp),
            None => found.push((group, barrier, vec![group.warp])),
        }
    }
    found.iter().map(|(group, barrier, warps)| note(group, barrier, warps, handle)).collect()
}

fn note(group: &Waiting, barrier: &BarrierWait, warps: &[u32], handle: &Handle) -> String {
    let users = handle.compiled.barrier_users(barrier.offset);
    let name = users.as_ref().map_or("an mbarrier".to_owned(), |users| format!("`{}`", users.name));
    let who = match warps {
        [one] => format!("warp {one}"),
        [first, .., last] => format!("warps {first} to {last}"),
        [] => String::new(),
    };
    let partition = handle.compiled.partition_of(warps[0]);
    let partition = partition.map_or(String::new(), |name| format!(" ({name})"));
    let verb = if warps.len() == 1 { "waits" } else { "wait" };
    let line = group.location.kernel.as_ref().map_or(String::new(), |(_, line)| format!(" in line {line}"));
    let BarrierWait { phase, arrivals: (missing, needed), bytes, .. } = barrier;
    let state = match *bytes {
        0 => format!("lacks {missing} of {needed} arrivals"),
        1.. if *missing == 0 => format!("lacks {bytes} bytes"),
        1.. => format!("lacks {missing} of {needed} arrivals and {bytes} bytes"),
        _ => {
            let surplus = bytes.unsigned_abs();
            format!("lacks {missing} of {needed} arrivals, and got {surplus} bytes more than it expects")
        }
    };
    let signals = users.map_or(Vec::new(), |users| users.signals);
    let signals = match signals.len() {
        0 => "nothing arrives there".to_owned(),
        1 => format!("only {} arrives there", signals[0]),
        last => format!("{} and {} arrive there", signals[..last - 1].join(", "), signals[last - 1]),
    };
    format!("{who}{partition} {verb}{line} for phase {phase} of {name}, which {state}: {signals}")
}
