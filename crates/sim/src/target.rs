//! The simulated device: what differs between targets.

/// A target of the simulator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimTarget {
    name: String,
    /// The compute capability, 90 for `sm_90`.
    capability: u32,
}

/// Bytes of shared memory that a block may use at most, from a capability on; what a launch has to ask for.
const SHARED_LIMITS: [(u32, usize); 7] = [
    (120, 99 << 10),
    (90, 227 << 10),
    (89, 99 << 10),
    (87, 163 << 10),
    (86, 99 << 10),
    (80, 163 << 10),
    (0, 64 << 10),
];

impl SimTarget {
    /// The target of a name, as `sm_90` or `sm_90a`; `None` if it is none, or below `sm_75`.
    pub fn new(name: &str) -> Option<Self> {
        let (capability, _) = parse(name)?;
        (capability >= 75).then(|| Self { name: name.into(), capability })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of shared memory that a block may use.
    pub fn shared_bytes(&self) -> usize {
        let limit = SHARED_LIMITS.iter().find(|(from, _)| self.capability >= *from);
        limit.expect("the last row holds for all").1
    }

    /// Whether it runs modules of a target: those of lower ones, and those for one architecture alone if it is the same.
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

/// The capability and the letter of a name.
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
