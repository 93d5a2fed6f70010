//! What a kernel is compiled for.

use std::fmt;

/// A machine that code is made for. GPU architectures join this list with their back end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Target {
    /// The processor that this process runs on. The executor chooses the widest vector instructions at run time, so the
    /// program is the same on every processor.
    Cpu,
}

impl Target {
    /// The target with this name: `cpu`.
    pub fn parse(name: &str) -> Option<Self> {
        (name == "cpu").then_some(Self::Cpu)
    }

    /// Every target that this build compiles for, by name.
    pub const NAMES: &[&str] = &["cpu"];

    /// The back end's name.
    pub fn backend(self) -> &'static str {
        match self {
            Target::Cpu => "cpu",
        }
    }

    /// The architecture: for a CPU that of the instruction set, such as `x86_64`.
    pub fn architecture(self) -> &'static str {
        match self {
            Target::Cpu => std::env::consts::ARCH,
        }
    }

    /// What the machine has, by the names that its makers use.
    pub fn features(self) -> Vec<&'static str> {
        match self {
            Target::Cpu => cpu_features(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend())
    }
}

macro_rules! detected {
    ($detect:ident: $($feature:tt)*) => {{
        let mut features = Vec::new();
        $(if std::arch::$detect!($feature) {
            features.push($feature);
        })*
        features
    }};
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    detected!(is_x86_feature_detected: "sse4.2" "avx" "f16c" "fma" "avx2" "avx512f" "avx512bw" "avx512vnni" "avx512bf16" "avx512fp16")
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    detected!(is_aarch64_feature_detected: "neon" "fp16" "bf16" "dotprod" "i8mm" "sve")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}
