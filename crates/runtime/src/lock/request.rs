//! Describes launches and compiled kernels for a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tilewright_compiler::{
    CodegenOptions, CompiledKernel, GpuCode, Job, LaunchInteger, LaunchTerm, Target, TensorMapPlan,
    TensorMapVariant,
};
use tilewright_frontend::{Argument, Constant, HostValue, ObjectRef};
use tilewright_ir::Element;
use tilewright_lock::{Launch, Parameter, Request, TensorMap};

use crate::ParameterType;
use crate::options::OptionId;

/// A kernel with the arguments, the target and the options of its compilation.
#[derive(Debug)]
pub(crate) struct Compilation {
    pub(crate) kernel: String,
    pub(crate) parameters: Vec<Arc<str>>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) target: Target,
    pub(crate) codegen: CodegenOptions,
    /// The variant, if the code is a variant for tensors that tensor maps cannot describe.
    pub(crate) variant: Option<TensorMapVariant>,
}

impl Compilation {
    pub(crate) fn of(kernel: &str, job: &Job) -> Self {
        Self {
            kernel: kernel.to_owned(),
            parameters: job.parameters.clone(),
            arguments: job.request.arguments.clone(),
            target: job.target,
            codegen: job.codegen,
            variant: None,
        }
    }

    /// Returns the description of the launches that run the code. `ir` is the hash of its IR.
    pub(crate) fn request(&self, ir: String) -> Request {
        let arguments = self.parameters.iter().zip(&self.arguments);
        Request {
            kernel: self.kernel.clone(),
            target: self.target.to_string(),
            arguments: arguments.map(|(name, argument)| (name.to_string(), text(argument))).collect(),
            options: self.options(),
            ir,
        }
    }

    /// Returns the options on which the compilation of the IR depends. On the CPU, there are none.
    fn options(&self) -> BTreeMap<String, String> {
        let CodegenOptions { num_warps, num_stages, num_ctas, max_registers, contraction, tensor_maps } =
            self.codegen;
        if self.target == Target::Cpu {
            return BTreeMap::new();
        }
        let registers = max_registers.map_or("None".to_owned(), |count| count.to_string());
        let variant = self.variant.as_ref().map(|variant| (WITHOUT, variant.to_string()));
        let rows = [
            ("num_warps", num_warps.to_string()),
            ("num_stages", num_stages.to_string()),
            ("num_ctas", num_ctas.to_string()),
            ("maxnreg", registers),
            ("enable_fp_fusion", contraction.to_string()),
            ("tensor_maps", tensor_maps.to_string()),
        ];
        rows.into_iter().chain(variant).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the facts that a launcher needs.
    pub(crate) fn launch(&self, kernel: &CompiledKernel, code: Option<&GpuCode>) -> Launch {
        let mut parameters = Vec::new();
        for (name, argument) in self.parameters.iter().zip(&self.arguments) {
            add_parameters(name.to_string(), argument, &mut parameters);
        }
        let entry = kernel.entry_name().to_owned();
        let launch = Launch { entry, threads: 1, cluster: 1, parameters, ..Launch::default() };
        let Some(code) = code else { return launch };
        Launch {
            threads: code.threads,
            shared_bytes: code.shared_bytes,
            cluster: code.cluster(),
            tensor_maps: code.tensor_maps().iter().map(|plan| tensor_map(plan, &launch.parameters)).collect(),
            has_pairs: code.has_pairs(),
            ..launch
        }
    }
}

/// The option of a variant's entry that names the accesses without tensor maps.
pub(crate) const WITHOUT: &str = "without_tensor_maps";

/// Returns the options of code generation in an entry. On the CPU, returns the defaults. On a GPU,
/// returns `None` if an option is missing or invalid.
pub(crate) fn codegen(options: &BTreeMap<String, String>, target: Target) -> Option<CodegenOptions> {
    if target == Target::Cpu {
        return options.is_empty().then(CodegenOptions::default);
    }
    let value = |option: OptionId| {
        let value = constant(options.get(option.info().name)?)?;
        option.info().kind.takes(&value).then_some(value)
    };
    let number =
        |option| if let Constant::Int(value) = value(option)? { value.try_into().ok() } else { None };
    let switch = |option| if let Constant::Bool(value) = value(option)? { Some(value) } else { None };
    Some(CodegenOptions {
        num_warps: number(OptionId::NumWarps)?,
        num_stages: number(OptionId::NumStages)?,
        num_ctas: number(OptionId::NumCtas)?,
        max_registers: match value(OptionId::Maxnreg)? {
            Constant::None => None,
            _ => Some(number(OptionId::Maxnreg)?),
        },
        contraction: switch(OptionId::EnableFpFusion)?,
        tensor_maps: options.get("tensor_maps")?.parse().ok()?,
    })
}

/// Parses the value of an option from its text in an entry; `None` if the text is invalid.
pub(crate) fn constant(text: &str) -> Option<Constant> {
    Some(match text {
        "true" => Constant::Bool(true),
        "false" => Constant::Bool(false),
        "None" => Constant::None,
        number => Constant::Int(number.parse().ok()?),
    })
}

/// Returns the description of an argument, such as `*fp32:16`, `i32` or `1024`.
fn text(argument: &Argument) -> String {
    let with = |divisibility: u32| match divisibility {
        1 => String::new(),
        _ => format!(":{divisibility}"),
    };
    match argument {
        Argument::Pointer { divisibility, is_const, .. } => {
            let name = ParameterType::of(argument).name();
            let name = if *is_const { name.replacen('*', "*k", 1) } else { name };
            format!("{name}{}", with(*divisibility))
        }
        Argument::Scalar { divisibility, .. } => {
            format!("{}{}", ParameterType::of(argument).name(), with(*divisibility))
        }
        Argument::Constexpr(value) => value_text(value),
        Argument::Tuple(items) if items.descriptor().is_some() => ParameterType::of(argument).name(),
        Argument::Tuple(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("({})", items.join(", "))
        }
    }
}

/// The text for an object of the host without a text of its own.
const OBJECT: &str = "<object>";

/// The function that returns the text of an object of the host, such as a layout of Gluon.
static OBJECT_TEXT: OnceLock<ObjectText> = OnceLock::new();

/// A function that returns the text of an object of the host, if it has one.
pub type ObjectText = fn(ObjectRef) -> Option<String>;

/// Sets the function that returns the text of an object of the host. Later calls have no effect.
pub fn describe_objects_by(text_of: ObjectText) {
    let _ = OBJECT_TEXT.set(text_of);
}

fn value_text(value: &HostValue) -> String {
    match value {
        HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => constant.to_string(),
        HostValue::Tuple(items) => {
            let items: Vec<String> = items.iter().map(value_text).collect();
            format!("({})", items.join(", "))
        }
        HostValue::Language(path) => format!("tl.{path}"),
        HostValue::Function(_) | HostValue::ConstexprFunction(_) | HostValue::Callable(_) => {
            "<function>".to_owned()
        }
        HostValue::Object(object) => {
            OBJECT_TEXT.get().and_then(|text_of| text_of(*object)).unwrap_or_else(|| OBJECT.to_owned())
        }
        HostValue::RunTime(_) => OBJECT.to_owned(),
    }
}

/// Returns the recipe of a tensor map, with the names of the arguments.
fn tensor_map(plan: &TensorMapPlan, parameters: &[Parameter]) -> TensorMap {
    let name = |number: u32| parameters[number as usize].name.clone();
    let expression = |number: &LaunchInteger| {
        let term = |LaunchTerm { factor, arguments }: &LaunchTerm| {
            let factor = (*factor != 1 || arguments.is_empty()).then(|| factor.to_string());
            factor
                .into_iter()
                .chain(arguments.iter().map(|&number| name(number)))
                .collect::<Vec<_>>()
                .join("*")
        };
        let terms: Vec<String> = number.0.iter().map(term).collect();
        if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
    };
    let copied = plan.copied.as_ref();
    TensorMap {
        element: plan.element.name().to_owned(),
        base: name(plan.base),
        offset: expression(&plan.offset),
        extents: plan.extents.iter().map(expression).collect(),
        strides: plan.strides.iter().map(expression).collect(),
        nonnegative: plan.nonnegative.iter().map(|&number| name(number)).collect(),
        block: copied.map_or_else(Vec::new, |copied| copied.extents.to_vec()),
        swizzle: copied.and_then(|copied| copied.swizzle.row_bytes()).unwrap_or(0),
        is_written: plan.access().is_written,
        pixels: copied
            .and_then(|copied| copied.pixels.as_ref())
            .map(|(count, window)| format!("{count} {window}")),
    }
}

/// Adds the run-time arguments in order, each aligned to its size.
fn add_parameters(name: String, argument: &Argument, parameters: &mut Vec<Parameter>) {
    let (element, divisibility) = match argument {
        Argument::Pointer { pointee, divisibility, .. } => (Element::Pointer(*pointee), *divisibility),
        Argument::Scalar { dtype, divisibility } => (Element::Value(*dtype), *divisibility),
        Argument::Constexpr(_) => return,
        Argument::Tuple(items) => {
            for (index, item) in items.iter().enumerate() {
                add_parameters(format!("{name}{}", items.accessor(index)), item, parameters);
            }
            return;
        }
    };
    let bytes = element.bytes() as u64;
    let end = parameters.last().map_or(0, |last| last.offset + last.bytes);
    let offset = end.next_multiple_of(bytes);
    let ty = ParameterType::of(argument).name();
    parameters.push(Parameter { name, ty, offset, bytes, divisibility });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_an_entry_are_those_that_a_launch_can_set() {
        let valid = [
            ("num_warps", "8"),
            ("num_stages", "2"),
            ("num_ctas", "1"),
            ("maxnreg", "None"),
            ("enable_fp_fusion", "true"),
            ("tensor_maps", "false"),
        ];
        let target = Target::parse("sm_90a").unwrap();
        let read = |options: &BTreeMap<String, String>| codegen(options, target);
        let valid: BTreeMap<String, String> =
            valid.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = read(&valid).unwrap();
        assert_eq!((options.num_warps, options.max_registers), (8, None));
        let with = |name: &str, value: &str| {
            let mut options = valid.clone();
            options.insert(name.to_owned(), value.to_owned());
            read(&options)
        };
        assert_eq!(with("maxnreg", "64").unwrap().max_registers, Some(64));
        for (name, value) in [
            ("maxnreg", "many"),
            ("maxnreg", ""),
            ("maxnreg", "-1"),
            ("maxnreg", "1025"),
            ("maxnreg", "4294967360"),
            ("maxnreg", "true"),
            ("num_warps", "3"),
            ("num_warps", "None"),
            ("enable_fp_fusion", "1"),
            ("tensor_maps", "yes"),
        ] {
            assert!(with(name, value).is_none(), "{name}: {value}");
        }
        for name in valid.keys() {
            let mut options = valid.clone();
            options.remove(name);
            assert!(read(&options).is_none(), "{name}");
        }
        assert!(codegen(&valid, Target::Cpu).is_none());
        assert_eq!(codegen(&BTreeMap::new(), Target::Cpu), Some(CodegenOptions::default()));
    }
}
