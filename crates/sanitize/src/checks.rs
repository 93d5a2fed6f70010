//! Defines the checks of a sanitized launch, and their names.

use std::fmt;

/// A kind of check in a sanitized launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// Out-of-bounds accesses. This check cannot be turned off.
    Bounds,
    /// Data races.
    Race,
    /// Reads of uninitialized memory. Also uses of the elements that a load without `other` returns
    /// for false mask elements.
    Init,
    /// Misaligned addresses and tensor descriptors, and wrong hints such as `tl.multiple_of`.
    Alignment,
    /// Integer overflow in the computation of addresses.
    Overflow,
    /// Operations that produce NaN or infinity from finite numbers.
    Nan,
}

impl Check {
    /// All checks.
    pub const ALL: [Check; 6] =
        [Check::Bounds, Check::Race, Check::Init, Check::Alignment, Check::Overflow, Check::Nan];

    /// Returns the name of the check, as it appears in lists of checks.
    pub fn name(self) -> &'static str {
        match self {
            Check::Bounds => "bounds",
            Check::Race => "race",
            Check::Init => "init",
            Check::Alignment => "alignment",
            Check::Overflow => "overflow",
            Check::Nan => "nan",
        }
    }
}

/// A set of checks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Checks(u8);

impl Checks {
    /// The empty set.
    pub const NONE: Checks = Checks(0);
    /// The set of all checks.
    pub const ALL: Checks = Checks((1 << Check::ALL.len()) - 1);

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the set contains a check.
    pub fn has(self, check: Check) -> bool {
        self.0 >> check as u8 & 1 == 1
    }

    /// Returns the union of two sets.
    #[must_use]
    pub fn with(self, others: Checks) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the checks of this set that are also in a list.
    #[must_use]
    pub fn with_only(self, checks: &[Check]) -> Self {
        Self(checks.iter().fold(0, |bits, check| bits | self.0 & 1 << *check as u8))
    }

    /// Returns the set as a number, which [`from_bits`](Self::from_bits) accepts.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set with this number. Ignores bits that belong to no check.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Parses a list such as `race,init`. The empty string, `1`, `all`, `true`, `on` and `yes`
    /// select all checks. `0`, `none`, `false`, `off` and `no` select no check. If a name is
    /// unknown, the error is the first unknown name.
    pub fn parse(list: &str) -> Result<Self, String> {
        match list.trim().to_ascii_lowercase().as_str() {
            "" | "1" | "all" | "true" | "on" | "yes" => return Ok(Self::ALL),
            "0" | "none" | "false" | "off" | "no" => return Ok(Self::NONE),
            _ => {}
        }
        let mut checks = Self::NONE;
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let found = Check::ALL.into_iter().find(|check| check.name().eq_ignore_ascii_case(name));
            checks.0 |= 1 << found.ok_or_else(|| name.to_owned())? as u8;
        }
        Ok(checks)
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Check::ALL.into_iter().filter(|&check| self.has(check)).map(Check::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed() {
        assert_eq!(Checks::parse(""), Ok(Checks::ALL));
        assert_eq!(Checks::parse("0"), Ok(Checks::NONE));
        let two = Checks::parse("race, NaN").expect("both are checks");
        assert!(two.has(Check::Race) && two.has(Check::Nan) && !two.has(Check::Init));
        assert_eq!(two.to_string(), "race,nan");
        assert_eq!(Checks::parse("race,rice"), Err("rice".into()));
        assert_eq!(Checks::from_bits(two.bits()), two);
    }
}
