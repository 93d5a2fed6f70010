//! Defines the options of a launch: the keyword arguments that are not parameters of the kernel.

mod table;

use smallvec::SmallVec;
use tilewright_base::{Code, Diagnostic};
use tilewright_compiler::{CodegenOptions, Target};
use tilewright_frontend::{Constant, suggest};
use tilewright_ir::InputPrecision;

use crate::key::Key;
use crate::{Error, FpFusion, Knobs};

pub use table::{Consumer, DefaultValue, OPTIONS, OptionId, OptionInfo, OptionKind};

/// The options of one launch, which are part of a kernel's key in the cache.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The values that differ from the defaults of the table, in the order of the table.
    set: SmallVec<[(OptionId, Constant); 4]>,
    /// The options that the environment determines, even if a launch sets them.
    fixed: SmallVec<[OptionId; 2]>,
    allow_plain_globals: bool,
    portable: bool,
}

impl Options {
    /// Creates the options of a launch that sets none. They are the defaults of the table, with the
    /// changes of `knobs`.
    pub fn new(knobs: &Knobs) -> Self {
        let mut options = Self {
            set: SmallVec::new(),
            fixed: SmallVec::new(),
            allow_plain_globals: knobs.allow_plain_globals,
            portable: knobs.portable,
        };
        if knobs.debug {
            options.put(OptionId::Debug, Constant::Bool(true));
            options.fixed.push(OptionId::Debug);
        }
        if knobs.fp_fusion != FpFusion::On {
            options.put(OptionId::EnableFpFusion, Constant::Bool(false));
        }
        if knobs.fp_fusion == FpFusion::Forbidden {
            options.fixed.push(OptionId::EnableFpFusion);
        }
        if knobs.default_dot_precision != InputPrecision::default() {
            let name = knobs.default_dot_precision.name();
            options.put(OptionId::DefaultDotInputPrecision, Constant::Str(name.into()));
        }
        options
    }

    /// Returns these options with `debug` on, so that assertions are checked. A launch can turn
    /// `debug` off again, unless the environment determines it.
    #[must_use]
    pub fn with_debug(mut self) -> Self {
        self.put(OptionId::Debug, Constant::Bool(true));
        self
    }

    /// Sets an option. Fails if the option does not accept this value, or if the option is
    /// [`Consumer::Refused`] and Python would regard the value as true. Ignores options of the
    /// launcher ([`Consumer::Launcher`]), and options that the environment determines.
    pub fn set(&mut self, option: OptionId, value: &Constant) -> Result<(), Error> {
        let info = option.info();
        if info.consumer == Consumer::Launcher {
            return Ok(());
        }
        if !info.kind.takes(value) {
            return Err(invalid(info, value).into());
        }
        if let Consumer::Refused(reason) = info.consumer
            && value.is_true()
        {
            let message = format!("the launch option {} cannot be set here", info.name);
            let note = format!("found {value}, and {reason}");
            let hint = "leave it out, if the kernel may do without";
            return Err(Diagnostic::new(Code::InvalidOption, message).note(note).hint(hint).into());
        }
        match (info.kind, value) {
            // The environment may have changed this default.
            (OptionKind::Bool, Constant::None) if option == OptionId::EnableFpFusion => {}
            (OptionKind::Bool, Constant::None) => self.put(option, info.default.into()),
            (OptionKind::Bool, _) => self.put(option, Constant::Bool(value.is_true())),
            _ => self.put(option, value.clone()),
        }
        Ok(())
    }

    /// Sets the option with this name. Fails as [`set`](Self::set) does, and for an option of the
    /// launcher.
    pub fn set_named(&mut self, name: &str, value: &Constant) -> Result<(), Error> {
        let Some(option) = OptionId::parse(name) else {
            let similar = suggest(name, OPTIONS.iter().map(|info| info.name));
            let hint = similar.map(|similar| format!("did you mean '{similar}'?"));
            let message = format!("'{name}' is not a launch option");
            let diagnostic = Diagnostic { hint, ..Diagnostic::new(Code::UnknownOption, message) };
            return Err(diagnostic.into());
        };
        if option.is_for_launcher() {
            let message = format!("the launch option {name} cannot be set for a compilation");
            let diagnostic = Diagnostic::new(Code::InvalidOption, message)
                .note(format!("{name}: {}; the code does not depend on it", option.info().about));
            return Err(diagnostic.hint("pass it to a launch").into());
        }
        self.set(option, value)
    }

    /// Returns the value of an option, or its default.
    pub fn get(&self, option: OptionId) -> Constant {
        match self.place(option) {
            Ok(place) => self.set[place].1.clone(),
            Err(_) => option.info().default.into(),
        }
    }

    /// Fails if the value of an option is impossible on the target. The CPU accepts every value of
    /// the table, so that programs for GPUs run on the CPU.
    pub(crate) fn check(&self, target: Target) -> Result<(), Error> {
        use OptionKind::{Int, PowerOfTwo};
        let Target::Gpu(gpu) = target else { return Ok(()) };
        let refused = |option: OptionId, note: String| {
            let message =
                format!("the launch option {} is {}, for {target}", option.info().name, self.get(option));
            Diagnostic::new(Code::InvalidOption, message).note(note)
        };
        let threads = "a warp has 32 threads, and a block at most 1024";
        let limits = [
            (OptionId::NumCtas, PowerOfTwo(16), "a cluster has at most 16 blocks"),
            (OptionId::NumStages, Int(0, 64), "each stage takes shared memory"),
            (OptionId::NumWarps, PowerOfTwo(32), threads),
        ];
        for (option, kind, why) in limits {
            let value = self.get(option);
            if !kind.takes(&value) {
                let mut diagnostic = refused(option, format!("expected {kind}: {why}"));
                if let (PowerOfTwo(most), Constant::Int(found)) = (kind, &value) {
                    diagnostic.hint = Some(nearest_powers(*found, most));
                }
                return Err(diagnostic.into());
            }
        }
        if self.number(OptionId::WarpSize) != Some(32) {
            return Err(refused(OptionId::WarpSize, format!("expected 32: {threads}")).into());
        }
        let arch = match self.get(OptionId::Arch) {
            Constant::None => return Ok(()),
            Constant::Str(name) => name.to_string(),
            other => other.to_string(),
        };
        // Triton and its users write the architecture as sm90, sm_90a or 90.
        let digits: String = arch.chars().filter(char::is_ascii_digit).collect();
        if !arch.starts_with("gfx") && digits == gpu.capability.to_string() {
            return Ok(());
        }
        let note = format!("a kernel is compiled for its target; expected '{target}'");
        let hint = "to compile for another GPU, call `triton.compile(source, target=GPUTarget(\"cuda\", 80, 32))`; \
                    to run the kernel on a simulated GPU, select the device sim:sm_80";
        Err(refused(OptionId::Arch, note).hint(hint).into())
    }

    /// Returns the options that are set to a true value but have no effect on a GPU
    /// ([`Consumer::Warned`]). Each has its value and a text about what happens instead. Omits
    /// `ptx_version` if it is the version of the target. Returns none if the target is the CPU.
    pub fn without_effect(&self, target: Target) -> Vec<(OptionInfo, Constant, &'static str)> {
        let Target::Gpu(gpu) = target else { return Vec::new() };
        let ptx_version = Constant::Int((gpu.ptx_version.0 * 10 + gpu.ptx_version.1).into());
        let warned = self.set.iter().filter_map(|(option, value)| {
            let info = option.info();
            let Consumer::Warned(instead) = info.consumer else { return None };
            let is_met = *option == OptionId::PtxVersion && *value == ptx_version;
            (value.is_true() && !is_met).then(|| (*info, value.clone(), instead))
        });
        warned.collect()
    }

    /// Returns the options of code generation.
    pub(crate) fn codegen(&self) -> CodegenOptions {
        let number = |option| self.number(option).expect("its row takes ints only");
        CodegenOptions {
            num_warps: number(OptionId::NumWarps),
            num_stages: number(OptionId::NumStages),
            num_ctas: number(OptionId::NumCtas),
            max_registers: self.number(OptionId::Maxnreg),
            contraction: self.is_on(OptionId::EnableFpFusion),
            tensor_maps: false,
        }
    }

    /// Returns the options of the frontend. The meaning of a kernel depends on these.
    pub(crate) fn language(&self) -> tilewright_frontend::Options {
        let precision = match self.get(OptionId::DefaultDotInputPrecision) {
            Constant::Str(name) => InputPrecision::from_name(&name),
            _ => None,
        };
        tilewright_frontend::Options {
            debug: self.is_on(OptionId::Debug),
            ignore_overflow: !self.is_on(OptionId::SanitizeOverflow),
            allow_plain_globals: self.allow_plain_globals,
            portable: self.portable,
            default_dot_precision: precision.expect("its row takes names of precisions only"),
            default_imprecise_acc: self.number(OptionId::MaxNumImpreciseAccDefault),
            ..tilewright_frontend::Options::default()
        }
    }

    pub(crate) fn language_for(&self, target: Target, check_indices: bool) -> tilewright_frontend::Options {
        tilewright_frontend::Options {
            num_warps: self.codegen().num_warps,
            num_ctas: self.codegen().num_ctas,
            capability: target.capability().unwrap_or_else(crate::device::claimed_capability),
            check_indices,
            ..self.language()
        }
    }

    pub(crate) fn is_on(&self, option: OptionId) -> bool {
        self.get(option).is_true()
    }

    /// Returns the value of an option, if it is an int that fits in a `u32`.
    pub(crate) fn number(&self, option: OptionId) -> Option<u32> {
        match self.get(option) {
            Constant::Int(number) => u32::try_from(number).ok(),
            _ => None,
        }
    }

    pub(crate) fn encode(&self, key: &mut Key) {
        let switches = u64::from(self.allow_plain_globals) | u64::from(self.portable) << 1;
        key.push(switches | (self.set.len() as u64) << 2);
        for (option, value) in &self.set {
            key.push(*option as u64);
            key.push_constant(value);
        }
    }

    /// Returns a copy with only the options that can change the code for a CPU.
    pub(crate) fn of_language(&self) -> Self {
        let mut options = self.clone();
        options.set.retain(|(option, _)| option.info().consumer == Consumer::Language);
        options
    }

    /// Sets an option. A default is not stored, so that options with the same meaning are equal.
    fn put(&mut self, option: OptionId, value: Constant) {
        if self.fixed.contains(&option) {
            return;
        }
        let is_default = value == Constant::from(option.info().default);
        match self.place(option) {
            Ok(place) if is_default => drop(self.set.remove(place)),
            Ok(place) => self.set[place].1 = value,
            Err(_) if is_default => {}
            Err(place) => self.set.insert(place, (option, value)),
        }
    }

    /// Returns the index of an option among the set options, or as an error the index at which to
    /// insert it.
    fn place(&self, option: OptionId) -> Result<usize, usize> {
        self.set.binary_search_by_key(&option, |(other, _)| *other)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(&Knobs::current())
    }
}

fn invalid(info: &OptionInfo, value: &Constant) -> Diagnostic {
    let default = Constant::from(info.default);
    let hint = match (info.kind, value) {
        (OptionKind::PowerOfTwo(most), Constant::Int(found)) if *found > 0 => nearest_powers(*found, most),
        _ => format!("{}: {}; the default is {default}", info.name, info.about),
    };
    Diagnostic::new(Code::InvalidOption, format!("the launch option {} is {value}", info.name))
        .note(format!("found {value} of type {}, expected {}", value.type_name(), info.kind))
        .hint(hint)
}

/// Returns the powers of two up to `most` that are nearest to a wrong number.
fn nearest_powers(found: i128, most: u32) -> String {
    let powers = || (0..u32::BITS).map(|bit| 1_u32 << bit).filter(|power| *power <= most);
    let below = powers().filter(|power| i128::from(*power) < found).max();
    let above = powers().find(|power| i128::from(*power) > found);
    let near: Vec<String> = below.into_iter().chain(above).map(|power| power.to_string()).collect();
    format!("use {}", near.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &Constant) -> Result<Options, Error> {
        let mut options = Options::new(&Knobs::default());
        options.set_named(name, value)?;
        Ok(options)
    }

    /// Returns a valid value of an option that is not its default.
    fn another(info: &OptionInfo) -> Constant {
        match (info.kind, info.default) {
            (OptionKind::PowerOfTwo(_), DefaultValue::Int(default)) => Constant::Int(default * 2),
            (OptionKind::Int(..), DefaultValue::Int(default)) => Constant::Int(default + 1),
            (OptionKind::OptionalInt(..), _) => Constant::Int(32),
            (OptionKind::Bool, DefaultValue::Bool(default)) => Constant::Bool(!default),
            (OptionKind::Precision, _) => Constant::Str("ieee".into()),
            (OptionKind::Text | OptionKind::Any, _) => Constant::Str("other".into()),
            (kind, default) => panic!("{}: the default of {kind} is {default:?}", info.name),
        }
    }

    fn key(options: &Options) -> Key {
        let mut key = Key::default();
        options.encode(&mut key);
        key
    }

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_in_force() {
        for pair in OPTIONS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} {}", pair[0].name, pair[1].name);
        }
        let options = Options::new(&Knobs::default());
        for (row, info) in OPTIONS.iter().enumerate() {
            assert_eq!((info.id as usize, OptionId::parse(info.name)), (row, Some(info.id)));
            assert!(info.kind.takes(&info.default.into()), "{}", info.name);
            assert_eq!(options.get(info.id), info.default.into(), "{}", info.name);
        }
        assert_eq!(options.codegen(), CodegenOptions::default());
        assert_eq!(options.language(), tilewright_frontend::Options::default());
    }

    #[test]
    fn what_is_set_can_be_had_and_belongs_to_the_key() {
        let default = Options::new(&Knobs::default());
        let mut keys = vec![key(&default), key(&set("num_warps", &Constant::Int(16)).unwrap())];
        for info in OPTIONS {
            let value = another(info);
            let options = match (info.consumer, set(info.name, &value)) {
                (Consumer::Refused(_) | Consumer::Launcher, options) => {
                    assert_eq!(options.unwrap_err().code(), Some(Code::InvalidOption), "{}", info.name);
                    continue;
                }
                (_, options) => options.unwrap(),
            };
            assert_eq!(options.get(info.id), value, "{}", info.name);
            assert!(!keys.contains(&key(&options)), "{}", info.name);
            keys.push(key(&options));
            let mut back = options.clone();
            back.set(info.id, &info.default.into()).unwrap();
            assert_eq!(back, default, "{}", info.name);
        }
    }

    #[test]
    fn options_reach_those_who_follow_them() {
        let default = Options::new(&Knobs::default());
        for info in OPTIONS {
            let Ok(options) = set(info.name, &another(info)) else { continue };
            let is_for = |consumer| info.consumer == consumer;
            assert_eq!(options.language() != default.language(), is_for(Consumer::Language), "{}", info.name);
            assert_eq!(options.codegen() != default.codegen(), is_for(Consumer::Codegen), "{}", info.name);
        }
    }

    #[test]
    fn a_gpu_warns_of_what_nobody_follows_unless_there_is_a_reason() {
        for info in OPTIONS {
            let Ok(options) = set(info.name, &another(info)) else { continue };
            let expected = match info.consumer {
                Consumer::Warned(instead) => vec![(*info, another(info), instead)],
                _ => Vec::new(),
            };
            for target in Target::names().into_iter().filter_map(Target::parse) {
                let expected = if target == Target::Cpu { &[] } else { &expected[..] };
                assert_eq!(options.without_effect(target), expected, "{}, {target}", info.name);
            }
        }
    }

    #[test]
    fn values_are_checked() {
        let is_set = |name: &str, value: Constant, expected: Constant| {
            assert_eq!(set(name, &value).unwrap().get(OptionId::parse(name).unwrap()), expected, "{name}");
        };
        is_set("num_warps", Constant::Int(8), Constant::Int(8));
        is_set("num_warps", Constant::Int(128), Constant::Int(128));
        is_set("maxnreg", Constant::None, Constant::None);
        is_set("launch_pdl", Constant::Int(1), Constant::Bool(true));
        is_set("sanitize_overflow", Constant::None, Constant::Bool(true));
        is_set("extern_libs", Constant::Tuple(vec![].into()), Constant::Tuple(vec![].into()));
        for (name, value) in [
            ("num_warps", Constant::Int(0)),
            ("num_warps", Constant::Int(3)),
            ("num_warps", Constant::Int(129)),
            ("num_warps", Constant::Int(i128::MAX)),
            ("num_ctas", Constant::Int(-2)),
            ("num_ctas", Constant::Int(0)),
            ("num_ctas", Constant::Int(3)),
            ("num_ctas", Constant::Int(1000)),
            ("num_warps", Constant::Int(i128::MIN)),
            ("num_warps", Constant::Bool(true)),
            ("num_warps", Constant::Float(4.0)),
            ("num_stages", Constant::Int(-1)),
            ("maxnreg", Constant::Int(1025)),
            ("maxnreg", Constant::Str("many".into())),
            ("debug", Constant::Str("yes".into())),
            ("default_dot_input_precision", Constant::Str("fp4".into())),
        ] {
            assert_eq!(set(name, &value).unwrap_err().code(), Some(Code::InvalidOption), "{name}");
        }
    }

    #[test]
    fn counts_that_no_gpu_has_are_refused_for_gpus_alone() {
        let counts = [
            ("num_warps", &[1, 2, 32][..], &[64, 128, 1 << 30][..]),
            ("num_ctas", &[1, 16], &[32, 1 << 30]),
            ("num_stages", &[0, 1, 7, 64], &[65, 1000]),
        ];
        for (name, good, bad) in counts {
            for &count in good.iter().chain(bad) {
                let options = set(name, &Constant::Int(count.into())).unwrap();
                for target in Target::names().into_iter().filter_map(Target::parse) {
                    let code = options.check(target).map_err(|error| error.code());
                    let is_refused = target != Target::Cpu && bad.contains(&count);
                    let expected = if is_refused { Err(Some(Code::InvalidOption)) } else { Ok(()) };
                    assert_eq!(code, expected, "{name}={count} for {target}");
                }
            }
        }
    }

    #[test]
    fn the_environment_has_the_first_word_and_sometimes_the_last() {
        let fusion = |fp_fusion, value: Constant| {
            let mut options = Options::new(&Knobs { fp_fusion, ..Knobs::default() });
            options.set(OptionId::EnableFpFusion, &value).unwrap();
            options.codegen().contraction
        };
        for (knob, none, on, off) in [
            (FpFusion::On, true, true, false),
            (FpFusion::Off, false, true, false),
            (FpFusion::Forbidden, false, false, false),
        ] {
            assert_eq!(fusion(knob, Constant::None), none, "{knob:?}");
            assert_eq!(fusion(knob, Constant::Bool(true)), on, "{knob:?}");
            assert_eq!(fusion(knob, Constant::Bool(false)), off, "{knob:?}");
        }
        for (knob, is_on) in [(false, false), (true, true)] {
            let mut options = Options::new(&Knobs { debug: knob, ..Knobs::default() }).with_debug();
            assert!(options.language().debug);
            options.set(OptionId::Debug, &Constant::Bool(false)).unwrap();
            assert_eq!(options.language().debug, is_on);
        }
        let ieee = Knobs { default_dot_precision: InputPrecision::Ieee, ..Knobs::default() };
        let mut options = Options::new(&ieee);
        assert_eq!(options.language().default_dot_precision, InputPrecision::Ieee);
        options.set(OptionId::DefaultDotInputPrecision, &Constant::Str("tf32".into())).unwrap();
        assert_eq!(options, Options::new(&Knobs::default()));
        options.set(OptionId::MaxNumImpreciseAccDefault, &Constant::Int(32)).unwrap();
        assert_eq!(options.language().default_imprecise_acc, Some(32));
    }

    #[test]
    fn the_order_of_options_does_not_matter() {
        let [mut one, mut other] = [(); 2].map(|()| Options::new(&Knobs::default()));
        let pairs = [(OptionId::NumWarps, 8), (OptionId::Maxnreg, 64), (OptionId::NumStages, 2)];
        for ((option, value), (last, its_value)) in pairs.into_iter().zip(pairs.into_iter().rev()) {
            one.set(option, &Constant::Int(value)).unwrap();
            other.set(last, &Constant::Int(its_value)).unwrap();
        }
        assert_eq!(key(&one), key(&other));
    }
}
