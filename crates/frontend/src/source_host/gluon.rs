//! Resolves the names of Gluon (`triton.experimental.gluon`), and creates its layouts.
//!
//! A layout is an object whose path is `=` and its text form.

use std::sync::Arc;

use ruff_python_ast::{Expr, Stmt};
use tilewright_ir::{Bases, Shape, Sizes, StatedBuffer, StatedLayout};

use super::{MAX_DEPTH, SourceHost};
use crate::host::{CallError, HostValue};
use crate::parse::parse;
use crate::reference::ObjectRef;
use crate::semantic;
use crate::value::Constant;

const LANGUAGE: &str = "triton.experimental.gluon.language";

/// The submodules of the language module, each with the prefix of its names in the compiler.
const MODULES: &[(&str, &str)] = &[
    ("", "gluon"),
    ("nvidia.ampere.async_copy", "gluon.async_copy"),
    ("nvidia.hopper.async_copy", "gluon.async_copy"),
    ("nvidia.ampere.mbarrier", "gluon.mbarrier"),
    ("nvidia.hopper.mbarrier", "gluon.mbarrier"),
    ("nvidia.hopper.tma", "gluon.tma"),
    ("nvidia.hopper.cluster", "gluon.cluster"),
    ("nvidia.ampere", "gluon.hopper"),
    ("nvidia.hopper", "gluon.hopper"),
    ("nvidia.blackwell.async_copy", "gluon.async_copy"),
    ("nvidia.blackwell.mbarrier", "gluon.mbarrier"),
    ("nvidia.blackwell.tma", "gluon.tma"),
    ("nvidia.blackwell.cluster", "gluon.cluster"),
    ("nvidia.blackwell.clc", "gluon.clc"),
    ("nvidia.blackwell", "gluon.blackwell"),
    ("nvidia.blackwell", "gluon.hopper"),
];

/// Each layout has its name, its fields, and the defaults of the last fields.
const LAYOUTS: &[(&str, &[&str], &[&str])] = &[
    ("AutoLayout", &[], &[]),
    ("CoalescedLayout", &[], &[]),
    (
        "BlockedLayout",
        &["size_per_thread", "threads_per_warp", "warps_per_cta", "order", "cga_layout"],
        &["[]"],
    ),
    ("SliceLayout", &["dim", "parent"], &[]),
    ("DistributedLinearLayout", &["reg_bases", "lane_bases", "warp_bases", "block_bases", "shape"], &[]),
    ("DotOperandLayout", &["operand_index", "parent", "k_width"], &[]),
    ("NVMMADistributedLayout", &["version", "warps_per_cta", "instr_shape", "cga_layout"], &["[]"]),
    (
        "NVMMASharedLayout",
        &["swizzle_byte_width", "element_bitwidth", "rank", "transposed", "fp4_padded", "cga_layout"],
        &["2", "False", "False", "[]"],
    ),
    ("SwizzledSharedLayout", &["vec", "per_phase", "max_phase", "order", "cga_layout"], &["[]"]),
    ("SharedLinearLayout", &["offset_bases", "block_bases", "alignment"], &["[]", "16"]),
    ("PaddedSharedLayout", &["interval_padding_pairs", "offset_bases", "cga_layout", "shape"], &[]),
    ("MBarrierLayout", &["cga_layout"], &["[]"]),
    (
        "TensorMemoryLayout",
        &["block", "col_stride", "cga_layout", "two_ctas", "fp4_padded"],
        &["[]", "False", "False"],
    ),
    ("TensorMemoryScalesLayout", &["cga_layout"], &["[]"]),
];

/// The fields that the text form omits if they have their defaults.
const OMITTED: &[&str] = &["cga_layout", "block_bases", "fp4_padded", "alignment"];

/// The layouts without support for `cga_layout`.
const UNDIVIDED: &[&str] = &["PaddedSharedLayout"];

/// The functions of layouts that the host calls.
const FUNCTIONS: &[&str] =
    &["NVMMASharedLayout.get_default_for", "PaddedSharedLayout.with_identity_for", "to_linear_layout"];

/// Returns a path relative to the language module, without private modules.
fn below_language(path: &str) -> Option<String> {
    let rest = path.strip_prefix(LANGUAGE)?.strip_prefix('.')?;
    let public: Vec<&str> = rest.split('.').filter(|part| !part.starts_with('_')).collect();
    Some(public.join("."))
}

/// Returns the name of a layout class or of a function of layouts; `None` for other paths.
fn callable(path: &str) -> Option<String> {
    let below = below_language(path)?;
    let is_function = FUNCTIONS.iter().any(|function| below == *function);
    let last = below.rsplit('.').next().unwrap_or(&below);
    let is_layout = LAYOUTS.iter().any(|(name, ..)| *name == last);
    if is_function { Some(below) } else { is_layout.then(|| last.to_owned()) }
}

pub(super) fn language_name(path: &str) -> Option<String> {
    let below = below_language(path)?;
    if callable(path).is_some() {
        return None;
    }
    let (module, name) = below.rsplit_once('.').unwrap_or(("", &below));
    let prefixes = MODULES.iter().filter(|(known, _)| *known == module).map(|(_, prefix)| *prefix);
    let mut own = prefixes.map(|prefix| format!("{prefix}.{name}"));
    if let Some(own) = own.find(|own| semantic::language(own).is_some()) {
        return Some(own);
    }
    // The other names are names of `triton.language`.
    (module.is_empty() && semantic::language(name).is_some()).then(|| name.to_owned())
}

impl SourceHost {
    pub(super) fn is_layout_callable(&self, object: ObjectRef) -> bool {
        callable(self.path(object)).is_some()
    }

    pub(super) fn layout_of_text(&mut self, text: &str) -> Option<HostValue> {
        let text = normalized(text).ok()?;
        Some(self.layout_object(&text))
    }

    fn layout_object(&mut self, text: &str) -> HostValue {
        HostValue::Object(self.object(format!("={text}")))
    }

    /// Returns the layout that an expression such as `BlockedLayout([1], [32], [4], [0])` creates,
    /// and its text form.
    pub fn layout_of_expression(&mut self, text: &str) -> Option<(HostValue, Arc<str>)> {
        let module = parse(text).ok()?;
        let [Stmt::Expr(statement)] = &module.body[..] else { return None };
        let value = self.evaluate_layout(&statement.value, 0)?;
        let HostValue::Object(object) = value else { return None };
        let text = self.layout_text(object)?.into();
        Some((value, text))
    }

    /// Evaluates an expression that names layouts without an import.
    fn evaluate_layout(&mut self, expression: &Expr, depth: usize) -> Option<HostValue> {
        let Expr::Call(call) = expression else { return self.evaluate(expression, depth) };
        if depth > MAX_DEPTH {
            return None;
        }
        let class = match &*call.func {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => return None,
        };
        let arguments = call.arguments.args.iter().map(|argument| self.evaluate_layout(argument, depth + 1));
        let arguments = arguments.collect::<Option<Vec<_>>>()?;
        let keywords = call.arguments.keywords.iter().map(|keyword| {
            Some((keyword.arg.as_ref()?.to_string(), self.evaluate_layout(&keyword.value, depth + 1)?))
        });
        let keywords = keywords.collect::<Option<Vec<_>>>()?;
        let text = self.make_layout(class, &arguments, &keywords).ok()?;
        Some(self.layout_object(&text))
    }

    fn layout_text(&self, object: ObjectRef) -> Option<&str> {
        self.path(object).strip_prefix('=')
    }

    /// Returns whether two layouts are equal; `None` for other operands.
    pub(super) fn are_equal_layouts(&self, operands: &[HostValue]) -> Option<bool> {
        let text = |operand: &HostValue| match operand {
            HostValue::Object(object)
            | HostValue::Constant(Constant::Object(object))
            | HostValue::PlainGlobal(Constant::Object(object)) => self.layout_text(*object),
            _ => None,
        };
        let [left, right] = operands else { return None };
        Some(text(left)? == text(right)?)
    }

    /// Returns an attribute of a layout; `None` for other objects and attributes.
    pub(super) fn layout_attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue> {
        let text = self.layout_text(object)?.to_owned();
        if name == "_text" {
            return Some(HostValue::PlainGlobal(Constant::Str(text.into())));
        }
        let int = |value: u32| Constant::Int(i128::from(value));
        let ints = |values: &[u32]| Constant::Tuple(values.iter().map(|value| int(*value)).collect());
        let constant = match (text.parse::<StatedLayout>(), text.parse::<StatedBuffer>()) {
            (Ok(layout), _) if name == "rank" => int(layout.rank() as u32),
            (_, Ok(buffer)) if name == "rank" => int(buffer.rank() as u32),
            (Ok(StatedLayout::Slice { parent, .. } | StatedLayout::DotOperand { parent, .. }), _)
                if name == "parent" =>
            {
                return Some(self.layout_object(&parent.to_string()));
            }
            (Ok(layout), _) if name == "cga_layout" => bases_constant(layout.cga()?),
            (_, Ok(buffer)) if name == "cga_layout" => bases_constant(buffer.cga()?),
            (
                Ok(StatedLayout::Blocked { size_per_thread, threads_per_warp, warps_per_cta, order, .. }),
                _,
            ) => ints(match name {
                "size_per_thread" => &size_per_thread,
                "threads_per_warp" => &threads_per_warp,
                "warps_per_cta" => &warps_per_cta,
                "order" => &order,
                _ => return None,
            }),
            (Ok(StatedLayout::Mma { warps_per_cta, .. }), _) if name == "warps_per_cta" => {
                ints(&warps_per_cta)
            }
            (Ok(StatedLayout::Mma { instr_shape, .. }), _) if name == "instr_shape" => ints(&instr_shape),
            (_, Ok(StatedBuffer::Nvmma { swizzle_byte_width, element_bitwidth, transposed, .. })) => {
                match name {
                    "swizzle_byte_width" => int(swizzle_byte_width),
                    "element_bitwidth" => int(element_bitwidth),
                    "transposed" => Constant::Bool(transposed),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(HostValue::PlainGlobal(constant))
    }

    fn part_of_layout(&self, value: &HostValue) -> Result<String, String> {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        match value {
            HostValue::Constant(constant) | HostValue::PlainGlobal(constant) => match constant {
                Constant::Tuple(items) => {
                    let parts =
                        items.iter().map(|item| self.part_of_layout(&HostValue::Constant(item.clone())));
                    parts.collect::<Result<_, _>>().map(list)
                }
                Constant::Object(object) => self.part_of_layout(&HostValue::Object(*object)),
                Constant::Int(value) => Ok(value.to_string()),
                Constant::Bool(value) => Ok(if *value { "True" } else { "False" }.to_owned()),
                other => Err(format!("a layout has no part {other}")),
            },
            HostValue::Tuple(items) => {
                items.iter().map(|item| self.part_of_layout(item)).collect::<Result<_, _>>().map(list)
            }
            HostValue::Object(object) => {
                self.layout_text(*object).map(str::to_owned).ok_or_else(|| "the parent is no layout".into())
            }
            _ => Err("the parts of a layout are numbers, lists and layouts".to_owned()),
        }
    }

    /// Calls a layout class or a function of layouts; `None` for other objects.
    pub(super) fn call_layout(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Option<Result<HostValue, CallError>> {
        let name = callable(self.path(callee))?;
        let made = match name.as_str() {
            "NVMMASharedLayout.get_default_for" => default_for(arguments, keywords),
            "PaddedSharedLayout.with_identity_for" => self.padded_identity(arguments),
            "to_linear_layout" => self.linear_layout(arguments),
            _ => self.make_layout(&name, arguments, keywords),
        };
        Some(made.map(|text| self.layout_object(&text)).map_err(CallError::from))
    }

    fn make_layout(
        &self,
        class: &str,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<String, String> {
        let row = LAYOUTS.iter().find(|(name, ..)| *name == class);
        let (_, fields, defaults) = row.ok_or_else(|| format!("there is no layout {class}"))?;
        if arguments.len() > fields.len() {
            return Err(format!("{class} takes {} arguments, found {}", fields.len(), arguments.len()));
        }
        if let Some((name, _)) = keywords.iter().find(|(name, _)| !fields.contains(&name.as_str())) {
            return Err(format!("{class} has no parameter '{name}'"));
        }
        let first_default = fields.len() - defaults.len();
        let mut parts = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            let keyword = keywords.iter().find(|(name, _)| name == field).map(|(_, value)| value);
            let default = index.checked_sub(first_default).map(|index| defaults[index]);
            let is_none = |value: &&HostValue| {
                matches!(value, HostValue::Constant(Constant::None) | HostValue::PlainGlobal(Constant::None))
            };
            let given = arguments.get(index).or(keyword).filter(|value| !is_none(value));
            let part = given.map(|value| self.part_of_layout(value)).transpose()?;
            let part = part.or_else(|| default.map(str::to_owned));
            let part = part.ok_or_else(|| format!("{class} lacks its argument '{field}'"))?;
            let is_set = default.is_some_and(|default| default != part)
                || class == "PaddedSharedLayout" && *field == "cga_layout" && part != "[]";
            let is_padded_memory = *field == "fp4_padded" && class == "TensorMemoryLayout";
            let is_missing = is_padded_memory || UNDIVIDED.contains(&class) && *field == "cga_layout";
            if is_set && is_missing {
                return Err(format!("{field} of {class} is not available in this version of tilewright"));
            }
            let is_omitted = OMITTED.contains(field) && class != "DistributedLinearLayout";
            if is_omitted && is_set && *field != "alignment" {
                // The bases follow `fp4_padded`.
                let lacks_padding =
                    class == "NVMMASharedLayout" && *field == "cga_layout" && parts.len() == 4;
                parts.extend(lacks_padding.then(|| "False".to_owned()));
                parts.push(part);
            } else if !is_omitted {
                parts.push(part);
            }
        }
        let text = match class {
            "MBarrierLayout" => {
                let bases = parts.first().map_or("", String::as_str);
                let separator = if bases.is_empty() { "" } else { ", " };
                format!("SwizzledSharedLayout(1, 1, 1, [0]{separator}{bases})")
            }
            _ => format!("{class}({})", parts.join(", ")),
        };
        normalized(&text)
    }

    /// `PaddedSharedLayout.with_identity_for(interval_padding_pairs, shape, order)`.
    fn padded_identity(&self, arguments: &[HostValue]) -> Result<String, String> {
        let [pairs, shape, order, ..] = arguments else {
            return Err("with_identity_for takes pairs, a shape and an order".to_owned());
        };
        let [pairs, shape, order] = [pairs, shape, order].map(|value| self.part_of_layout(value));
        let (pairs, shape, order) = (pairs?, numbers(&shape?)?, numbers(&order?)?);
        let mut bases = Vec::new();
        for axis in order {
            let extent = shape.get(axis as usize).ok_or("the order has axes that the shape lacks")?;
            for bit in 0..extent.ilog2() {
                let image = (0..shape.len() as u32).map(|at| if at == axis { 1 << bit } else { 0_u32 });
                bases.push(image.collect::<Vec<u32>>());
            }
        }
        normalized(&format!("PaddedSharedLayout({pairs}, {bases:?}, {shape:?})"))
    }

    /// `to_linear_layout(layout, shape)`.
    fn linear_layout(&self, arguments: &[HostValue]) -> Result<String, String> {
        let [layout, shape] = arguments else {
            return Err("to_linear_layout takes two arguments".to_owned());
        };
        let text = self.part_of_layout(layout)?;
        let shape: Shape = numbers(&self.part_of_layout(shape)?)?.into_iter().collect();
        if let Ok(layout) = text.parse::<StatedLayout>() {
            return Ok(StatedLayout::of_linear(&layout.linear(&shape)?).to_string());
        }
        let linear = text.parse::<StatedBuffer>()?.linear(&shape, 32)?;
        Ok(StatedBuffer::of_linear(&linear).to_string())
    }
}

/// `NVMMASharedLayout.get_default_for(block_shape, dtype, transposed, …)`.
fn default_for(arguments: &[HostValue], keywords: &[(String, HostValue)]) -> Result<String, String> {
    let at = |index: usize, name: &str| {
        let keyword = keywords.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        match arguments.get(index).or(keyword) {
            Some(HostValue::Constant(constant) | HostValue::PlainGlobal(constant)) => Some(constant.clone()),
            _ => None,
        }
    };
    let (Some(Constant::Tuple(extents)), Some(Constant::Type(dtype))) =
        (at(0, "block_shape"), at(1, "dtype"))
    else {
        return Err("get_default_for takes a shape and an element type".to_owned());
    };
    let is_padded = at(3, "fp4_padded").is_some_and(|value| value.is_true());
    let bits = dtype.dtype().map_or(32, tilewright_ir::Dtype::bits);
    let transposed = at(2, "transposed").is_some_and(|value| value.is_true());
    let bases = match at(4, "cga_layout") {
        Some(Constant::Tuple(bases)) => bases.to_vec(),
        _ => Vec::new(),
    };
    let of_block = extents_in_block(&extents, &bases)?;
    let columns = if transposed { of_block.first() } else { of_block.last() };
    let columns = *columns.ok_or("the shape has no axis")?;
    let rows = of_block.iter().product::<i128>() / columns.max(1);
    // Padding doubles the bytes of a row.
    let bytes = columns * i128::from(bits) / 8 * if is_padded { 2 } else { 1 };
    // The pattern of a swizzle has 8 rows.
    let width = if rows < 8 { None } else { [128, 64, 32].into_iter().find(|width| bytes >= *width) };
    let width = width.unwrap_or(0);
    let is_transposed = if transposed { "True" } else { "False" };
    let padded = if is_padded { "True" } else { "False" };
    let cga = if bases.is_empty() {
        String::new()
    } else {
        format!(", [{}]", bases.iter().map(list_text).collect::<Vec<_>>().join(", "))
    };
    normalized(&format!(
        "NVMMASharedLayout({width}, {bits}, {}, {is_transposed}, {padded}{cga})",
        extents.len()
    ))
}

/// Returns the extents of the part of a tile in one block of a cluster. Each basis of the cluster
/// with a number for an axis halves the extent of that axis.
fn extents_in_block(extents: &[Constant], cga_layout: &[Constant]) -> Result<Vec<i128>, String> {
    let int = |constant: &Constant| match constant {
        Constant::Int(number) => Ok(*number),
        _ => Err("the shape has no integers".to_owned()),
    };
    let mut of_block = extents.iter().map(int).collect::<Result<Vec<i128>, _>>()?;
    for basis in cga_layout {
        let Constant::Tuple(parts) = basis else { return Err("a basis of a cluster is a list".to_owned()) };
        for (extent, part) in of_block.iter_mut().zip(parts.iter()) {
            *extent /= if int(part)? == 0 { 1 } else { 2 };
        }
    }
    Ok(of_block)
}

fn list_text(list: &Constant) -> String {
    match list {
        Constant::Tuple(items) => {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns the bases of the blocks of a cluster as a tuple of tuples.
fn bases_constant(bases: &Bases) -> Constant {
    let ints = |basis: &Sizes| -> Constant {
        Constant::Tuple(basis.iter().map(|each| Constant::Int(i128::from(*each))).collect())
    };
    Constant::Tuple(bases.iter().map(ints).collect())
}

/// Returns the numbers of a list, such as `[1, 2]`.
fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let items = text.trim_matches(['[', ']']).split(", ").map(str::parse::<u32>);
    items.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Returns the text form of a layout as the compiler prints it.
fn normalized(text: &str) -> Result<String, String> {
    if matches!(text, "AutoLayout()" | "CoalescedLayout()") {
        return Ok(text.to_owned());
    }
    let registers = text.parse::<StatedLayout>().map(|layout| layout.to_string());
    registers.or_else(|_| text.parse::<StatedBuffer>().map(|layout| layout.to_string()))
}
