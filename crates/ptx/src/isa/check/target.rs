//! Checks a module's target and version against requirements of instructions.

use super::pattern::{Need, NeedKind};

/// The targets, with their first version (PTX ISA chapter 13, release notes).
const TARGETS: &[(&str, (u32, u32))] = &[
    ("sm_70", (6, 0)),
    ("sm_72", (6, 1)),
    ("sm_75", (6, 3)),
    ("sm_80", (7, 0)),
    ("sm_86", (7, 1)),
    ("sm_87", (7, 4)),
    ("sm_88", (9, 0)),
    ("sm_89", (7, 8)),
    ("sm_90", (7, 8)),
    ("sm_90a", (8, 0)),
    ("sm_100", (8, 6)),
    ("sm_100a", (8, 6)),
    ("sm_100f", (8, 8)),
    ("sm_101", (8, 6)),
    ("sm_101a", (8, 6)),
    ("sm_101f", (8, 8)),
    ("sm_103", (8, 8)),
    ("sm_103a", (8, 8)),
    ("sm_103f", (8, 8)),
    ("sm_107", (9, 4)),
    ("sm_107a", (9, 4)),
    ("sm_107f", (9, 4)),
    ("sm_110", (9, 0)),
    ("sm_110a", (9, 0)),
    ("sm_110f", (9, 0)),
    ("sm_120", (8, 7)),
    ("sm_120a", (8, 7)),
    ("sm_120f", (8, 8)),
    ("sm_121", (8, 8)),
    ("sm_121a", (8, 8)),
    ("sm_121f", (8, 8)),
];

/// The header of a module.
#[derive(Clone, Debug)]
pub(super) struct Head {
    name: String,
    capability: u32,
    /// True if the target is for only one architecture or family (`sm_90a`, `sm_100f`).
    is_specific: bool,
    /// True if the target is for only one architecture (`sm_90a`).
    is_one_architecture: bool,
    version: (u32, u32),
}

impl Head {
    /// Returns the header of a module; `Err` describes its error. Returns `None` for an unknown
    /// target, which is probably newer.
    pub(super) fn new(name: &str, version: (u32, u32)) -> Result<Option<Self>, String> {
        let Some((_, first)) = TARGETS.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        if version < *first {
            let (major, minor) = *first;
            return Err(format!(
                "`.target {name}` needs `.version {major}.{minor}`, but the module has {}.{}",
                version.0, version.1
            ));
        }
        let digits = name.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
        let capability = digits.parse().expect("the names of the table are numbers");
        let is_specific = name.ends_with(['a', 'f']);
        let is_one_architecture = name.ends_with('a');
        Ok(Some(Self { name: name.to_owned(), capability, is_specific, is_one_architecture, version }))
    }

    /// Returns whether the target is of the family of `sm_100`. `sm_101` is an older name of
    /// `sm_110`.
    fn is_of_family_100(&self) -> bool {
        (100..110).contains(&self.capability) && self.capability != 101
    }

    /// Returns the requirement that the header does not satisfy, if any.
    pub(super) fn lacks(&self, need: Need) -> Option<String> {
        let has_target = self.capability >= need.capability
            && match need.kind {
                NeedKind::All => true,
                NeedKind::This => self.is_specific && self.capability == need.capability,
                NeedKind::Specific => self.is_specific,
                NeedKind::DataCenter => self.is_specific && self.capability < 120,
                NeedKind::ArchitectureOfDataCenter => self.is_one_architecture && self.capability < 120,
                NeedKind::IntegerDots => {
                    self.is_one_architecture && [100, 101, 110].contains(&self.capability)
                }
                NeedKind::Family => self.is_specific && self.is_of_family_100(),
                NeedKind::ArchitectureOfFamily => self.is_one_architecture && self.is_of_family_100(),
            };
        if !has_target {
            let wanted = match need.kind {
                NeedKind::All => format!("sm_{} or newer", need.capability),
                NeedKind::This => format!("sm_{}a", need.capability),
                NeedKind::IntegerDots => "sm_100a or sm_110a".to_owned(),
                NeedKind::Family => "sm_100f or another target of its family".to_owned(),
                NeedKind::ArchitectureOfFamily => "sm_100a, sm_103a or sm_107a".to_owned(),
                NeedKind::Specific | NeedKind::DataCenter => {
                    let least = need.capability;
                    format!("sm_{least}a or another target for one architecture or family from there on")
                }
                NeedKind::ArchitectureOfDataCenter => {
                    format!("sm_{}a or another target for one architecture from there on", need.capability)
                }
            };
            return Some(format!("needs `.target` {wanted}, but the module is for {}", self.name));
        }
        let (major, minor) = need.version;
        (self.version < need.version).then(|| {
            let (own_major, own_minor) = self.version;
            format!("needs `.version` {major}.{minor}, but the module has {own_major}.{own_minor}")
        })
    }
}
