//! Defines the targets of a compilation.

use std::fmt;

/// A target machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The processor on which this process runs. The executor chooses the widest vector
    /// instructions at run time, so the program is the same on every processor.
    Cpu,
    /// A kind of NVIDIA GPU.
    Gpu(tilewright_gpu_ir::GpuTarget),
}

impl Target {
    /// Returns the target with this name, such as `cpu` or `sm_80`. `sm_90` and `sm_103` are aliases
    /// of `sm_90a` and `sm_103a`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Cpu),
            _ => tilewright_gpu_ir::GpuTarget::named(name).ok().map(Self::Gpu),
        }
    }

    /// Returns the names of all targets, and the aliases.
    pub fn names() -> Vec<&'static str> {
        let gpus = tilewright_gpu_ir::GpuTarget::ALL.iter().map(|target| target.name);
        ["cpu"].into_iter().chain(gpus).chain(["sm_90", "sm_103"]).collect()
    }

    /// Returns the best target for a GPU of this compute capability (times 10). Returns `None` for
    /// capabilities below 7.5.
    ///
    /// A target whose name ends in `a` is chosen only for exactly its own capability.
    pub fn for_capability(capability: u32) -> Option<Self> {
        let runs = |target: &&tilewright_gpu_ir::GpuTarget| {
            target.capability == capability || target.capability < capability && !target.name.ends_with('a')
        };
        tilewright_gpu_ir::GpuTarget::ALL.iter().rfind(runs).copied().map(Self::Gpu)
    }

    /// Returns whether the back end selects instructions for dots with scales. Otherwise, the
    /// optimizer inlines their implementation in the kernel language.
    pub(crate) fn has_scaled_dots(self) -> bool {
        matches!(self, Target::Gpu(target) if target.features.has(tilewright_gpu_ir::Feature::Tcgen05))
    }

    /// Returns the name that Triton uses for the back end.
    pub fn backend(self) -> &'static str {
        match self {
            Target::Cpu => "cpu",
            Target::Gpu(_) => "cuda",
        }
    }

    /// Returns the architecture. For a GPU, this is the name of the target, such as `sm_80`. For a
    /// CPU, it is the instruction set, such as `x86_64`.
    pub fn architecture(self) -> &'static str {
        match self {
            Target::Cpu => std::env::consts::ARCH,
            Target::Gpu(target) => target.name,
        }
    }

    /// Returns 10 times the compute capability of a GPU, or `None` for a CPU.
    pub fn capability(self) -> Option<u32> {
        match self {
            Target::Cpu => None,
            Target::Gpu(target) => Some(target.capability),
        }
    }

    /// Returns the usual names of the vector extensions of the processor that runs this process.
    /// For a GPU, the list is empty, because the architecture implies the features.
    pub fn features(self) -> Vec<&'static str> {
        match self {
            Target::Cpu => cpu_features(),
            Target::Gpu(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu => f.write_str("cpu"),
            Target::Gpu(target) => f.write_str(target.name),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for name in Target::names() {
            let target = Target::parse(name).unwrap();
            assert!(target.to_string().starts_with(name), "{name}");
        }
        assert_eq!(Target::parse("sm_70"), None);
        assert_eq!(Target::parse("sm_90").unwrap().capability(), Some(90));
    }

    #[test]
    fn a_gpu_gets_code_that_it_can_run() {
        let name = |capability| Target::for_capability(capability).map(Target::architecture);
        assert_eq!(name(70), None);
        assert_eq!((name(75), name(80), name(86)), (Some("sm_75"), Some("sm_80"), Some("sm_86")));
        // Code for a target whose name ends in `a`, such as `sm_90a`, does not run on later GPUs.
        assert_eq!((name(90), name(100), name(120)), (Some("sm_90a"), Some("sm_100a"), Some("sm_120")));
        assert_eq!((name(103), name(121)), (Some("sm_103a"), Some("sm_120")));
        assert_eq!(name(110), Some("sm_100"));
    }
}
