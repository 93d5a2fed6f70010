//! Races for global memory, and reads of global memory that nobody has written, in launches that are watched.

mod common;

use std::sync::{Mutex, PoisonError};

use common::kernel;
use tilewright_sanitize::MEMORY;
use tilewright_sim::{FaultKind, Launch, Region, SimTarget, Simulator, Watch};

/// What is found in a launch of so many blocks of 64 threads, whose body has `%out`, the address of 256 words, `%t`, the thread,
/// and `%b`, the block; `%i` is the address of the thread's word.
fn found(body: &str, blocks: u32) -> Vec<FaultKind> {
    let body = format!(
        "
    .reg .b64 %out, %i, %next;
    .reg .b32 %t, %b, %v, %o;
    .reg .pred %p, %q;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mad.wide.u32 %i, %t, 4, %out;
    xor.b32 %o, %t, 32;
    mad.wide.u32 %next, %o, 4, %out;
    setp.eq.u32 %p, %b, 0;
    {body}
    ret;"
    );
    let mut memory = vec![0_u32; 256];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    let address = (bytes.as_ptr() as u64).to_le_bytes();
    let regions = [Region::of(bytes)];
    let module = Simulator::new(SimTarget::new("sm_90a").expect("a target"))
        .load(&kernel(&["out"], &body))
        .unwrap_or_else(|error| panic!("{error}"));
    let name = module.kernels().next().expect("the module has a kernel").to_owned();
    let watch = Watch::new(true, true);
    let mut launch = Launch::new(&name, [blocks, 1, 1], [64, 1, 1], &address, &regions);
    launch.watch = Some(&watch);
    module.launch(&launch).unwrap_or_else(|fault| panic!("{fault}"));
    watch.into_findings().into_iter().map(|(fault, _)| fault.kind).collect()
}

/// The tests share what is known of memory.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn warps_race_without_a_barrier() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let found_races = found("st.global.u32 [%i], %t;\n ld.global.u32 %v, [%next];", 1);
    assert!(matches!(found_races[..], [FaultKind::GlobalRace { is_write: false, .. }]), "{found_races:?}");
    assert_eq!(found("st.global.u32 [%i], %t;\n bar.sync 0;\n ld.global.u32 %v, [%next];", 1), []);
}

#[test]
fn blocks_race_unless_they_synchronise() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Block 0 stores and sets a flag behind its words; block 1 waits for the flag and loads.
    let handshake = |store: &str, load: &str| {
        format!(
            "@!%p bra READ;
    st.global.u32 [%i], 7;
    bar.sync 0;
    setp.eq.u32 %q, %t, 0;
    @%q {store} [%out+512], 1;
    bra END;
    READ: {load} %v, [%out+512];
    setp.eq.u32 %q, %v, 0;
    @%q bra READ;
    SEEN:
    ld.global.u32 %v, [%i];
    END:"
        )
    };
    let plain = ["st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32"];
    let ordered = ["st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"];
    let races = found(&handshake(plain[0], plain[1]), 2);
    assert!(matches!(races[..], [FaultKind::GlobalRace { is_write: false, .. }]), "{races:?}");
    assert_eq!(found(&handshake(ordered[0], ordered[1]), 2), []);
    let fenced = handshake(plain[0], plain[1])
        .replace("setp.eq.u32 %q, %t, 0;", "setp.eq.u32 %q, %t, 0;\n fence.acq_rel.gpu;")
        .replace("SEEN:", "fence.acq_rel.gpu;");
    assert_eq!(found(&fenced, 2), []);
    // Both blocks write one word: the same value is no race.
    assert_eq!(found("st.global.u32 [%i], 3;", 2), []);
    assert!(!found("st.global.u32 [%i], %b;", 2).is_empty());
    assert_eq!(found("atom.relaxed.gpu.global.add.u32 %v, [%i], %b;", 2), []);
    assert!(!found("atom.relaxed.cta.global.add.u32 %v, [%i], %b;", 2).is_empty());
}

#[test]
fn lanes_that_store_to_one_place() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let races = found("setp.lt.u32 %q, %t, 2;\n @%q st.global.u32 [%out], %t;", 1);
    assert!(matches!(races[..], [FaultKind::GlobalRace { is_write: true, .. }]), "{races:?}");
    assert_eq!(found("setp.lt.u32 %q, %t, 2;\n @%q st.global.u32 [%out], 5;", 1), []);
}

#[test]
fn memory_that_nobody_has_written() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The words of a launch are elsewhere each time: all of memory is without content, but what the kernel writes.
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).freed(0, u64::MAX);
    let mut memory = vec![0_u32; 64];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    let start = bytes.as_ptr() as u64;
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).allocated(start, 256);
    let text = kernel(
        &["out"],
        "
    .reg .b64 %out;
    .reg .b32 %v;
    ld.param.u64 %out, [out];
    st.global.u32 [%out+4], 1;
    ld.global.u32 %v, [%out+4];
    ld.global.u32 %v, [%out+8];
    ret;",
    );
    let regions = [Region::of(bytes)];
    let parameters = start.to_le_bytes();
    let module = Simulator::new(SimTarget::new("sm_90a").expect("a target")).load(&text).expect("it is PTX");
    let name = module.kernels().next().expect("the module has a kernel").to_owned();
    let watch = Watch::new(true, true);
    let mut launch = Launch::new(&name, [1, 1, 1], [1, 1, 1], &parameters, &regions);
    launch.watch = Some(&watch);
    module.launch(&launch).unwrap_or_else(|fault| panic!("{fault}"));
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).freed(0, u64::MAX);
    let kinds: Vec<_> = watch.into_findings().into_iter().map(|(fault, _)| fault.kind).collect();
    assert_eq!(kinds, [FaultKind::UnwrittenGlobal { address: start + 8, bytes: 4 }]);
}
