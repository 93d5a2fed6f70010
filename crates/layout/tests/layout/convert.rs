//! Executes conversion plans on a simulated machine with registers, lanes, warps and shared memory.

use proptest::prelude::*;
use tilewright_layout::{
    Access, ConvertError, Fragment, Input, Layout, Mma, Plan, Select, SharedPlan, ShufflePlan, bank_use,
    blocked, convert, copy_plan, f2, shared_plan, shuffle_plan,
};

use crate::random::{Bits, TRIP_COST, check, surjective, tiles};

/// The registers of a block: `registers[warp][lane][register]` is the index of an element.
type Registers = Vec<Vec<Vec<u32>>>;

/// Returns the element of each register of a value with this layout.
fn registers(layout: &Layout) -> Registers {
    let at = |warp, lane, register| {
        layout.at(&[(Input::Warp, warp), (Input::Lane, lane), (Input::Register, register)])
    };
    let threads = |warp| {
        let lanes = 0..1 << layout.bits_of(Input::Lane);
        lanes.map(|lane| (0..layout.registers()).map(|register| at(warp, lane, register)).collect()).collect()
    };
    (0..1 << layout.bits_of(Input::Warp)).map(threads).collect()
}

fn run(plan: &Plan, source: Registers, to: &Layout) -> Registers {
    match plan {
        Plan::Nothing => source,
        Plan::Registers(names) => {
            let rename = |thread: &Vec<u32>| names.iter().map(|name| thread[*name as usize]).collect();
            source.iter().map(|warp| warp.iter().map(rename).collect()).collect()
        }
        Plan::Shuffle(plan) => run_shuffles(plan, &source),
        Plan::Shared(plan) => run_shared(plan, &source, to),
    }
}

fn run_shuffles(plan: &ShufflePlan, source: &Registers) -> Registers {
    let run_warp = |(warp, lanes): (usize, &Vec<Vec<u32>>)| {
        let warp = warp as u32;
        let give = |lane: usize| {
            let change = plan.give.iter().fold(0, |sum, select| sum ^ select.in_thread(lane as u32, warp));
            plan.rounds.iter().map(move |round| lanes[lane][(round.register ^ change) as usize])
        };
        let given: Vec<Vec<u32>> = (0..lanes.len()).map(|lane| give(lane).collect()).collect();
        let take = |lane: usize| {
            let lane = lane as u32;
            let from = plan.source_lane.at(&[(Input::Lane, lane), (Input::Warp, warp)]);
            let received: Vec<u32> = (plan.rounds.iter().enumerate())
                .map(|(number, round)| given[(from ^ round.lane) as usize][number])
                .collect();
            let change = plan.take.iter().fold(0, |sum, select| sum ^ select.in_thread(lane, warp));
            plan.results.iter().map(|round| received[(round ^ change) as usize]).collect()
        };
        (0..lanes.len()).map(take).collect()
    };
    source.iter().enumerate().map(run_warp).collect()
}

fn run_shared(plan: &SharedPlan, source: &Registers, to: &Layout) -> Registers {
    let mut memory = vec![None; 1 << plan.memory.bits_of(Input::Offset)];
    let offset = |access: &Access, warp: usize, lane: usize, number: u32| {
        let thread = access.offsets.at(&[(Input::Warp, warp as u32), (Input::Lane, lane as u32)]);
        let start = access.start(number);
        let offset = (thread ^ start.xor) + start.add;
        assert_eq!(offset % access.vector.width(), 0, "vectors are aligned");
        offset as usize
    };
    for (warp, lanes) in source.iter().enumerate() {
        for (lane, thread) in lanes.iter().enumerate() {
            for access in 0..plan.store.vector.accesses() {
                let names = plan.store.vector.registers(access);
                let start = offset(&plan.store, warp, lane, access);
                for (element, register) in names.iter().enumerate() {
                    let value = thread[*register as usize];
                    let old = memory[start + element].replace(value);
                    assert!(old.is_none_or(|old| old == value), "replicas store the same value");
                }
            }
        }
    }
    let mut result = registers(to);
    let representatives = to.representatives();
    for (warp, lanes) in result.iter_mut().enumerate() {
        for (lane, thread) in lanes.iter_mut().enumerate() {
            let mut loaded = vec![None; thread.len()];
            for access in 0..plan.load.vector.accesses() {
                let names = plan.load.vector.registers(access);
                let start = offset(&plan.load, warp, lane, access);
                for (element, register) in names.iter().enumerate() {
                    loaded[*register as usize] = Some(memory[start + element].expect("stored before"));
                }
            }
            for (register, value) in thread.iter_mut().enumerate() {
                *value = loaded[representatives[register] as usize].expect("the representative is loaded");
            }
        }
    }
    result
}

/// Checks that the plan is correct, and the cost of a plan through shared memory.
fn check_plan(plan: &Plan, from: &Layout, to: &Layout, element_bits: u32) {
    assert_eq!(run(plan, registers(from), to), registers(to), "{from}\n{to}\n{plan:?}");
    if let Plan::Shared(plan) = plan {
        assert_eq!(plan.bytes, (element_bits / 8) << plan.memory.rank());
        for (access, layout) in [(&plan.store, from), (&plan.load, to)] {
            let cost = bank_use(&plan.memory, layout, element_bits, access.vector.width());
            assert_eq!(cost.wavefronts, cost.instructions * access.wavefronts, "{from}\n{to}\n{plan:?}");
        }
    }
}

fn widths() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![8_u32, 16, 32, 64])
}

fn with_columns(
    bits: u32,
    inputs: Bits,
    spare: u32,
    mixing: usize,
) -> impl Strategy<Value = (Bits, Vec<u32>)> {
    let register = bits.saturating_sub(inputs.lane + inputs.warp) + spare;
    let inputs = Bits { register, ..inputs };
    surjective(inputs.total(), bits, mixing).prop_map(move |columns| (inputs, columns))
}

fn pairs() -> impl Strategy<Value = (Layout, Layout)> {
    let sizes =
        (2..=11_u32, 3..=5_u32, 0..=2_u32, [0..=1_u32, 0..=2_u32], prop_oneof![Just(0), Just(2), Just(15)]);
    sizes
        .prop_flat_map(|(bits, lane, warp, spare, mixing)| {
            let inputs = Bits { register: 0, lane, warp };
            let [a, b] = spare.map(|spare| with_columns(bits, inputs, spare, mixing));
            (tiles(bits), a, b)
        })
        .prop_map(|(tile, a, b)| (a.0.layout(&tile, &a.1), b.0.layout(&tile, &b.1)))
}

/// Generates pairs of layouts whose elements stay in their warps.
fn pairs_within_warps() -> impl Strategy<Value = (Layout, Layout)> {
    let sums = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..12);
    (pairs(), sums, any::<bool>()).prop_flat_map(|((from, _), sums, replicated_warps)| {
        let warps: Vec<u32> = if replicated_warps {
            from.bases(Input::Warp).iter().map(|_| 0).collect()
        } else {
            from.bases(Input::Warp).to_vec()
        };
        let own = [from.bases(Input::Register), from.bases(Input::Lane)].concat();
        let from = from.with_bases(Input::Warp, &warps);
        Just(own).prop_shuffle().prop_map(move |mut columns| {
            for (a, b) in &sums {
                let (a, b) = (a.index(columns.len()), b.index(columns.len()));
                if a != b {
                    columns[a] ^= columns[b];
                }
            }
            let registers = from.bits_of(Input::Register) as usize;
            let to = from.with_bases(Input::Register, &columns[..registers]);
            (from.clone(), to.with_bases(Input::Lane, &columns[registers..]))
        })
    })
}

#[test]
fn plans_move_every_element_to_its_place() {
    check(300, (pairs(), widths()), |((from, to), bits)| {
        let plan = convert(&from, &to, bits, TRIP_COST).expect("one block");
        check_plan(&plan, &from, &to, bits);
    });
}

#[test]
fn shared_memory_moves_every_element_to_its_place() {
    check(300, (pairs(), widths()), |((from, to), bits)| {
        let plan = shared_plan(&from, &to, bits).expect("one block");
        check_plan(&Plan::Shared(Box::new(plan)), &from, &to, bits);
    });
}

#[test]
fn copies_move_every_element_to_its_place() {
    check(300, (pairs(), widths()), |((from, to), bits)| {
        let registers = from.bases(Input::Register);
        let run = f2::independent(&registers[..registers.len().min(2)]);
        let plan = copy_plan(&from, &to, bits, &run).expect("one block");
        assert!(plan.store.vector.width() <= 1 << run.len(), "a copy moves elements of its run");
        check_plan(&Plan::Shared(Box::new(plan)), &from, &to, bits);
    });
}

#[test]
fn copies_for_fragments_are_whole_and_reads_have_no_conflicts() {
    let rows = blocked(&[64, 64], &[1, 4], &[2, 16], &[4, 1], &[1, 0]);
    let fragment = Mma::new(16, 8, 16, 16).layout(Fragment::A, &[64, 64], [4, 1]);
    let run: Vec<u32> = rows.bases(Input::Register)[..2].to_vec();
    let plan = copy_plan(&rows, &fragment, 32, &run).unwrap();
    assert_eq!(plan.store.vector.width(), 4);
    let width = plan.load.vector.width();
    assert_eq!(bank_use(&plan.memory, &fragment, 32, width).conflicts(), 0);
}

#[test]
fn conversions_within_a_warp_use_shuffles() {
    check(300, pairs_within_warps(), |(from, to)| {
        let plan = shuffle_plan(&from, &to).expect("no element leaves its warp");
        assert_eq!(
            plan.rounds.len() as u32,
            to.unique_registers(),
            "each round brings every lane an element"
        );
        let groups = plan.rounds.chunks(plan.rounds_per_lane as usize);
        assert!(groups.into_iter().all(|group| group.iter().all(|round| round.lane == group[0].lane)));
        check_plan(&Plan::Shuffle(Box::new(plan)), &from, &to, 32);
    });
}

#[test]
fn plans_of_shuffles_are_right_wherever_there_is_one() {
    check(600, pairs(), |(from, to)| {
        if let Some(plan) = shuffle_plan(&from, &to) {
            check_plan(&Plan::Shuffle(Box::new(plan)), &from, &to, 32);
        }
    });
}

/// Returns the layouts of a tile by rows and by columns, for 16-byte accesses.
fn rows_and_columns(element_bits: u32) -> (Layout, Layout) {
    let width = 128 / element_bits;
    let rows = blocked(&[64, 64], &[1, width], &[4, 8], &[4, 1], &[1, 0]);
    (rows, blocked(&[64, 64], &[width, 1], &[8, 4], &[1, 4], &[0, 1]))
}

#[test]
fn transposes_have_no_bank_conflicts() {
    for (element_bits, load_width) in [(8, 1), (16, 1), (32, 4), (64, 2)] {
        let (rows, columns) = rows_and_columns(element_bits);
        let plan = shared_plan(&rows, &columns, element_bits).unwrap();
        let widths = [&plan.store, &plan.load].map(|access| access.vector.width());
        assert_eq!(widths, [128 / element_bits, load_width], "{element_bits} bits");
        for (layout, width) in [(&rows, widths[0]), (&columns, widths[1])] {
            assert_eq!(bank_use(&plan.memory, layout, element_bits, width).conflicts(), 0);
        }
        assert_eq!(plan.bytes, 64 * 64 * element_bits / 8);
    }
}

#[test]
fn common_vectors_are_stored_and_loaded_whole() {
    // In both layouts, a thread holds pairs of consecutive columns.
    let rows = blocked(&[128, 128], &[1, 8], &[4, 8], &[4, 1], &[1, 0]);
    let product = Mma::new(16, 8, 16, 16).layout(Fragment::Accumulator, &[128, 128], [2, 2]);
    for element_bits in [8, 16, 32, 64] {
        let plan = shared_plan(&product, &rows, element_bits).unwrap();
        for (layout, access) in [(&product, &plan.store), (&rows, &plan.load)] {
            assert!(
                access.vector.width() * element_bits >= 64,
                "{element_bits} bits: {}",
                access.vector.width()
            );
            assert_eq!(bank_use(&plan.memory, layout, element_bits, access.vector.width()).conflicts(), 0);
        }
    }
}

#[test]
fn the_cheapest_kind_of_plan_is_taken() {
    let (rows, columns) = rows_and_columns(32);
    assert_eq!(convert(&rows, &rows, 32, TRIP_COST), Ok(Plan::Nothing));
    assert!(matches!(convert(&rows, &columns, 32, TRIP_COST), Ok(Plan::Shared(_))));
    // Both directions rename registers; the first one also drops replicas.
    let doubled = rows.product(&Layout::replicated(2, Input::Register, 2));
    assert!(
        matches!(convert(&doubled, &rows, 32, TRIP_COST), Ok(Plan::Registers(names)) if names.len() == 32)
    );
    assert!(
        matches!(convert(&rows, &doubled, 32, TRIP_COST), Ok(Plan::Registers(names)) if names.len() == 64)
    );
    // Two lanes exchange halves of a vector.
    let pairs = blocked(&[64], &[2], &[32], &[1], &[0]);
    let halves = blocked(&[64], &[1], &[32], &[1], &[0]);
    let Ok(Plan::Shuffle(plan)) = convert(&pairs, &halves, 32, TRIP_COST) else {
        panic!("a shuffle is enough")
    };
    assert_eq!((plan.rounds.len(), plan.shuffles(32)), (2, 2));
    // The accumulator of one dot has the layout of operand A of the next dot.
    let mma = Mma::new(16, 8, 16, 16);
    let [accumulator, a] =
        [Fragment::Accumulator, Fragment::A].map(|part| mma.layout(part, &[64, 64], [4, 1]));
    assert_eq!(convert(&accumulator, &a, 16, TRIP_COST), Ok(Plan::Nothing));
}

#[test]
fn narrow_elements_are_shuffled_in_words() {
    // The two lowest lane bits swap; the elements of a lane stay together.
    let from = Layout::from_bases(
        &[128],
        &[(Input::Register, &[&[1], &[2]]), (Input::Lane, &[&[4], &[8], &[16], &[32], &[64]])],
    );
    let to = from.with_bases(Input::Lane, &[8, 4, 16, 32, 64]);
    let plan = shuffle_plan(&from, &to).unwrap();
    assert_eq!((plan.give.len(), plan.take.len(), plan.rounds_per_lane), (0, 0, 4));
    assert_eq!([8, 16, 32, 64].map(|bits| plan.shuffles(bits)), [1, 2, 4, 8]);
}

#[test]
fn words_are_found_for_sums_of_registers() {
    // Only the XOR of two bases of `to` is in the span of the registers of `from`.
    let lanes = [4, 8, 16, 32, 64];
    let from = Layout::identity(1, 0, Input::Register, 4).product(&Layout::identity(1, 0, Input::Lane, 32));
    let to = from.with_bases(Input::Register, &[1 ^ 8, 2 ^ 8]).with_bases(Input::Lane, &lanes);
    let plan = shuffle_plan(&from, &to).unwrap();
    // Of four shuffles, two move nothing, and two share a word.
    assert_eq!((plan.rounds.len(), plan.rounds_per_lane, plan.shuffles(16)), (4, 2, 1));
    check_plan(&Plan::Shuffle(Box::new(plan)), &from, &to, 16);
}

#[test]
fn replicas_send_more_than_one_lane_could() {
    // Lanes `l` and `l + 16` both hold elements `l` and `l + 16`; each sends one of them.
    let from = Layout::identity(1, 0, Input::Lane, 16)
        .product(&Layout::replicated(1, Input::Lane, 2))
        .product(&Layout::identity(1, 0, Input::Register, 2));
    let to = Layout::identity(1, 0, Input::Lane, 32);
    let turned = to.with_bases(Input::Lane, &[16, 1, 2, 4, 8]);
    for (to, shuffles) in [(to, 0), (turned, 1)] {
        let plan = shuffle_plan(&from, &to).unwrap();
        assert_eq!((plan.rounds.len() as u32, plan.shuffles(32)), (1, shuffles));
        check_plan(&Plan::Shuffle(Box::new(plan)), &from, &to, 32);
    }
    // Without replicas in the warp, shuffles cannot deliver the elements. Lanes 0 to 15 hold all 32
    // elements that warp 0 needs.
    let from = Layout::identity(1, 0, Input::Register, 2)
        .product(&Layout::identity(1, 0, Input::Lane, 32))
        .product(&Layout::replicated(1, Input::Warp, 2));
    let to = from.with_bases(Input::Register, &[]).with_bases(Input::Warp, &[32]);
    let to = to.with_bases(Input::Lane, &[1, 2, 4, 8, 16]);
    assert_eq!(shuffle_plan(&from, &to), None);
    assert!(matches!(convert(&from, &to, 32, TRIP_COST), Ok(Plan::Shared(_))));
}

#[test]
fn vectors_of_one_side_do_not_break_those_of_both() {
    // Element 2 is in the span of element 1, the common vector, and of both sides' lanes. With
    // element 2 in the stores' vector, a lane bit of the loads would map into the common vector.
    let from = Layout::identity(1, 0, Input::Register, 4).product(&Layout::identity(1, 0, Input::Lane, 32));
    let to = from.with_bases(Input::Register, &[1, 4]).with_bases(Input::Lane, &[7, 8, 16, 32, 64]);
    let plan = shared_plan(&from, &to, 32).unwrap();
    assert_eq!((plan.store.vector.width(), plan.load.vector.width()), (2, 4));
    check_plan(&Plan::Shared(Box::new(plan)), &from, &to, 32);
}

#[test]
fn lanes_that_keep_their_elements_do_not_shuffle() {
    // Each warp holds all elements before the conversion, and one half after it.
    let all = Layout::from_bases(
        &[64],
        &[
            (Input::Register, &[&[32]]),
            (Input::Lane, &[&[1], &[2], &[4], &[8], &[16]]),
            (Input::Warp, &[&[0]]),
        ],
    );
    let parts = all.with_bases(Input::Register, &[]).with_bases(Input::Warp, &[32]);
    let plan = shuffle_plan(&all, &parts).unwrap();
    assert!(plan.is_butterfly());
    assert_eq!(
        (plan.shuffles(32), plan.give.to_vec()),
        (0, vec![Select { lanes: 0, warps: 1, registers: 1 }])
    );
}

#[test]
fn blocks_keep_their_elements() {
    let from = Layout::from_bases(
        &[64],
        &[(Input::Lane, &[&[1], &[2], &[4], &[8], &[16]]), (Input::Block, &[&[32]])],
    );
    let within = from.with_bases(Input::Lane, &[16, 2, 4, 8, 1]);
    assert!(shuffle_plan(&from, &within).is_some());
    let plan = shared_plan(&from, &within, 32).unwrap();
    assert_eq!((plan.bytes, plan.memory.rank()), (128, 5));
    let across = from.with_bases(Input::Lane, &[32, 2, 4, 8, 16]).with_bases(Input::Block, &[1]);
    assert_eq!(convert(&from, &across, 32, TRIP_COST), Err(ConvertError::AcrossBlocks));
}
