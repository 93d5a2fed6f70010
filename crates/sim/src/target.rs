//! Describes the simulated devices and their limits.

/// A device that the simulator can model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimTarget {
    name: String,
    /// The compute capability, 90 for `sm_90`.
    capability: u32,
}

/// The maximum shared memory of a block in bytes. The first row applies whose capability does not
/// exceed that of the device.
const SHARED_LIMITS: [(u32, usize); 7] = [
    (120, 99 << 10),
    (90, 227 << 10),
    (89, 99 << 10),
    (87, 163 << 10),
    (86, 99 << 10),
    (80, 163 << 10),
    (0, 64 << 10),
];

/// The number and the capacities of a GPU's multiprocessors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multiprocessor {
    /// Multiprocessors of the GPU.
    pub count: u32,
    /// Maximum resident threads.
    pub threads: u32,
    /// Maximum resident blocks.
    pub blocks: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Bytes of shared memory that the system reserves for each block.
    pub reserved_bytes: u32,
}

const fn multiprocessor(count: u32, threads: u32, blocks: u32, shared_kib: u32) -> Multiprocessor {
    let reserved_bytes = if shared_kib > 64 { 1024 } else { 0 };
    Multiprocessor { count, threads, blocks, shared_bytes: shared_kib << 10, reserved_bytes }
}

/// The multiprocessors of one GPU per range of capabilities: from the last row up, T4, A100, A10,
/// Orin, L40S, H100, B200 and RTX 5090. The limits are from the table of compute capabilities in
/// the CUDA programming guide.
const MULTIPROCESSORS: [(u32, Multiprocessor); 8] = [
    (120, multiprocessor(170, 1536, 24, 100)),
    (100, multiprocessor(148, 2048, 32, 228)),
    (90, multiprocessor(132, 2048, 32, 228)),
    (89, multiprocessor(142, 1536, 24, 100)),
    (87, multiprocessor(16, 1536, 16, 164)),
    (86, multiprocessor(72, 1536, 16, 100)),
    (80, multiprocessor(108, 2048, 32, 164)),
    (0, multiprocessor(40, 1024, 16, 64)),
];

impl SimTarget {
    /// Returns the multiprocessors of the GPU.
    pub fn multiprocessor(&self) -> Multiprocessor {
        let found = MULTIPROCESSORS.iter().find(|(from, _)| self.capability >= *from);
        found.expect("the last row holds for all").1
    }

    /// Parses a target such as `sm_90` or `sm_90a`. Returns `None` for other names, and below
    /// `sm_75`.
    pub fn new(name: &str) -> Option<Self> {
        let (capability, _) = parse(name)?;
        (capability >= 75).then(|| Self { name: name.into(), capability })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let limit = SHARED_LIMITS.iter().find(|(from, _)| self.capability >= *from);
        limit.expect("the last row holds for all").1
    }

    /// Returns whether the device runs modules of a target. The target's capability must not exceed
    /// the device's capability. With the suffix `f`, both capabilities must be of the same family.
    /// With the suffix `a`, they must be equal.
    pub fn runs(&self, module: &str) -> bool {
        match parse(module) {
            Some((capability, None)) => capability <= self.capability,
            Some((capability, Some('f'))) => {
                capability <= self.capability && capability / 10 == self.capability / 10
            }
            Some((capability, Some(_))) => capability == self.capability,
            None => false,
        }
    }
}

/// Splits a name into the capability and the letter.
fn parse(name: &str) -> Option<(u32, Option<char>)> {
    let rest = name.strip_prefix("sm_")?;
    let digits = rest.trim_end_matches(['a', 'f']);
    let letter = rest[digits.len()..].chars().next();
    Some((digits.parse().ok()?, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_run_on_their_target_and_above() {
        let hopper = SimTarget::new("sm_90").unwrap();
        assert!(hopper.runs("sm_75") && hopper.runs("sm_90") && hopper.runs("sm_90a"));
        assert!(!hopper.runs("sm_100") && !hopper.runs("sm_80a") && !hopper.runs("gfx90a"));
        assert!(SimTarget::new("sm_70").is_none() && SimTarget::new("hopper").is_none());
        assert_eq!(SimTarget::new("sm_80").unwrap().shared_bytes(), 163 << 10);
        assert_eq!(SimTarget::new("sm_89").unwrap().shared_bytes(), 99 << 10);
    }
}
