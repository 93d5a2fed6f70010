//! Specializes arguments by Triton's rules: finds the facts that the code may depend on.

use smallvec::SmallVec;
use tilewright_cpu as cpu;
use tilewright_cuda as cuda;
use tilewright_frontend::{Argument, Constant, DescriptorForm, HostValue, Tuple};
use tilewright_ir::{Dtype, Element, Literal};

use crate::key::Key;
use crate::signature::{Annotation, Parameter};
use crate::{Device, Value};

/// The facts about an argument that the code depends on, except the value of a constant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Class {
    Pointer {
        pointee: Dtype,
        is_aligned: bool,
    },
    Scalar {
        dtype: Dtype,
        is_multiple: bool,
    },
    /// The int 1.
    One,
    Constant,
    /// Each item has its own class.
    Tuple,
}

/// The reason why an argument does not fit its parameter.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The path of the item in a tuple argument, such as `[0].name`; empty for the argument itself.
    pub(crate) place: String,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// The value does not fit. The texts describe the value, the expected value, and a remedy.
    Value { found: String, note: String, hint: String },
    /// The memory of the tensor is on this device, and the device of the launch cannot read it.
    Device(Device),
}

impl Misfit {
    fn new(found: impl Into<String>, note: impl Into<String>, hint: impl Into<String>) -> Self {
        let why = Why::Value { found: found.into(), note: note.into(), hint: hint.into() };
        Self { place: String::new(), why }
    }
}

impl Misfit {
    /// Adds the position of an item in `tuple` to the path of the misfit.
    #[cold]
    fn within(mut self, tuple: &Tuple<Value<'_>>, index: usize) -> Self {
        self.place.insert_str(0, &tuple.accessor(index));
        self
    }
}

/// Code may depend on whether an address in bytes, or an int, is a multiple of this number.
const ALIGNMENT: u32 = 16;

impl Class {
    pub(crate) fn of(parameter: &Parameter, value: &Value<'_>, device: Device) -> Result<Self, Misfit> {
        if parameter.annotation == Annotation::Constexpr {
            return if contains_pointer(value) {
                Err(Misfit::new(
                    format!("{}, and the parameter is a tl.constexpr", value.describe()),
                    "expected a compile-time value: a number, string, dtype, function or tuple of such",
                    "a tensor is known at run time only: remove the annotation",
                ))
            } else {
                Ok(Class::Constant)
            };
        }
        let annotated = match parameter.annotation {
            Annotation::Type(element) => Some(element),
            Annotation::None | Annotation::Const | Annotation::Constexpr => None,
        };
        match value {
            Value::Pointer(tensor) => {
                if tensor.is_elsewhere(device) {
                    return Err(Misfit { place: String::new(), why: Why::Device(tensor.device) });
                }
                let is_aligned = tensor.address.is_multiple_of(ALIGNMENT.into());
                let pointee = declared_pointee(annotated, tensor.pointee)?;
                let is_aligned = is_aligned && parameter.specialize && parameter.specialize_alignment;
                Ok(Class::Pointer { pointee, is_aligned })
            }
            Value::Int(value) => int(parameter, annotated, *value),
            Value::Float(value) => float(annotated, *value),
            Value::Bool(value) => match annotated {
                None => Ok(Class::Scalar { dtype: Dtype::I1, is_multiple: false }),
                Some(_) => int(parameter, annotated, i128::from(*value)),
            },
            Value::Scalar(literal) => match (annotated, literal.as_int(), literal.as_float()) {
                (None, value, _) => {
                    let is_multiple =
                        !literal.dtype.is_bool() && value.is_some_and(|value| is_multiple(parameter, value));
                    Ok(Class::Scalar { dtype: literal.dtype, is_multiple })
                }
                (_, Some(value), _) => int(parameter, annotated, value),
                (_, _, Some(value)) => float(annotated, value),
                (_, None, None) => {
                    Err(Misfit::new(value.describe(), "expected a number", "pass a Python float"))
                }
            },
            Value::Constant { is_explicit: false, .. } => Err(Misfit::new(
                value.describe(),
                "expected a tensor, number, bool or None: something that exists at run time",
                format!("declare the parameter as `{}: tl.constexpr`", parameter.name),
            )),
            Value::Tuple(_) => match annotated {
                None => Ok(Class::Tuple),
                Some(element) => Err(Misfit::new(
                    format!("a tuple, and the parameter is declared as {element}"),
                    format!("expected {element}"),
                    "remove the annotation: each item of a tuple has its own type",
                )),
            },
            Value::None | Value::Constant { is_explicit: true, .. } => Ok(Class::Constant),
        }
    }

    /// Adds the class to a key, and the value if it is part of the code. Does not add the items of
    /// a tuple.
    #[inline]
    fn encode(self, value: &Value<'_>, key: &mut Key) {
        match self {
            Class::Pointer { pointee, is_aligned } => {
                key.push(1 | (pointee as u64) << 8 | u64::from(is_aligned) << 16);
            }
            Class::Scalar { dtype, is_multiple } => {
                key.push(2 | (dtype as u64) << 8 | u64::from(is_multiple) << 16);
            }
            Class::One => key.push(3),
            Class::Constant => {
                key.push(4);
                encode_constant(value, key);
            }
            Class::Tuple => key.push(5),
        }
    }

    /// Returns the compiler's description of an argument that is not a tuple.
    fn argument(self, value: &Value<'_>) -> Argument {
        let divisibility = |is_multiple: bool| if is_multiple { ALIGNMENT } else { 1 };
        match self {
            Class::Pointer { pointee, is_aligned } => {
                Argument::Pointer { pointee, divisibility: divisibility(is_aligned), is_const: false }
            }
            Class::Scalar { dtype, is_multiple } => {
                Argument::Scalar { dtype, divisibility: divisibility(is_multiple) }
            }
            Class::One => Argument::Constexpr(HostValue::Constant(Constant::Int(1))),
            Class::Constant | Class::Tuple => {
                Argument::Constexpr(value.to_host_value().unwrap_or(HostValue::Constant(Constant::None)))
            }
        }
    }
}

/// Adds the specialization of an argument to a key.
#[inline]
pub(crate) fn encode(
    parameter: &Parameter,
    value: &Value<'_>,
    device: Device,
    key: &mut Key,
) -> Result<(), Misfit> {
    let class = Class::of(parameter, value, device)?;
    class.encode(value, key);
    match (class, value) {
        (Class::Tuple, Value::Tuple(items)) => {
            match items.descriptor() {
                Some(form) => key.push_descriptor(form),
                None => key.push_tuple(items),
            }
            items.iter().enumerate().try_for_each(|(index, item)| {
                encode(parameter, item, device, key).map_err(|misfit| misfit.within(items, index))
            })
        }
        _ => Ok(()),
    }
}

/// Returns the compiler's description of an argument.
pub(crate) fn argument(parameter: &Parameter, value: &Value<'_>, device: Device) -> Result<Argument, Misfit> {
    let class = Class::of(parameter, value, device)?;
    let (Class::Tuple, Value::Tuple(items)) = (class, value) else { return Ok(class.argument(value)) };
    let parts = items
        .iter()
        .enumerate()
        .map(|(index, item)| argument(parameter, item, device).map_err(|misfit| misfit.within(items, index)));
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    if let Some(form) = items.descriptor() {
        align_descriptor(form, &mut parts);
    }
    Ok(Argument::Tuple(items.with_items(parts)))
}

/// Records that a descriptor's base, and all its strides but the last, are multiples of 16 bytes.
pub(crate) fn align_descriptor(form: &DescriptorForm, parts: &mut [Argument]) {
    let Some((Argument::Pointer { pointee, divisibility, .. }, numbers)) = parts.split_first_mut() else {
        return;
    };
    *divisibility = ALIGNMENT;
    let elements = ALIGNMENT / pointee.bytes() as u32;
    for part in numbers.iter_mut().skip(form.rank()) {
        if let Argument::Scalar { divisibility, .. } = part {
            *divisibility = (*divisibility).max(elements);
        }
    }
}

/// The arguments of a CPU launch; up to 24 need no allocation.
pub(crate) type CpuArguments<'m> = SmallVec<[cpu::Argument<'m>; 24]>;

/// Converts a value to the CPU's argument for a parameter of this type. Returns `None` if the value
/// does not fit.
#[inline]
pub(crate) fn cpu_argument<'m>(element: Element, value: &Value<'m>) -> Option<cpu::Argument<'m>> {
    match (element, value) {
        (Element::Pointer(_), Value::Pointer(pointer)) => {
            Some(cpu::Argument::Pointer { address: pointer.address, region: pointer.region })
        }
        (Element::Value(dtype), value) => bits(dtype, value).map(cpu::Argument::Scalar),
        (Element::Pointer(_), _) => None,
    }
}

/// Appends a value to the GPU's buffer of parameters. Returns `None` if the value does not fit the
/// parameter's type.
#[inline]
pub(crate) fn pack(element: Element, value: &Value<'_>, parameters: &mut cuda::Parameters) -> Option<()> {
    match (element, value) {
        (Element::Pointer(_), Value::Pointer(pointer)) => parameters.push(pointer.address),
        (Element::Pointer(_), _) => return None,
        (Element::Value(dtype), value) => {
            let bits = bits(dtype, value)?;
            match dtype.bytes() {
                1 => parameters.push(bits as u8),
                2 => parameters.push(bits as u16),
                4 => parameters.push(bits as u32),
                _ => parameters.push(bits),
            }
        }
    };
    Some(())
}

#[inline]
fn bits(dtype: Dtype, value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Int(value) if dtype.is_int() => int_bits(dtype, *value),
        Value::Bool(value) if dtype.is_int() => Some(u64::from(*value)),
        Value::Int(value) => Literal::float(dtype, *value as f64).map(|literal| literal.bits),
        Value::Bool(value) => Literal::float(dtype, f64::from(u8::from(*value))).map(|literal| literal.bits),
        Value::Float(value) => Literal::float(dtype, *value).map(|literal| literal.bits),
        Value::Scalar(literal) if literal.dtype == dtype => Some(literal.bits),
        Value::Scalar(literal) => match (literal.as_int(), literal.as_float()) {
            (Some(value), _) => bits(dtype, &Value::Int(value)),
            (_, Some(value)) => bits(dtype, &Value::Float(value)),
            (None, None) => None,
        },
        Value::Pointer(_) | Value::None | Value::Constant { .. } | Value::Tuple(_) => None,
    }
}

#[inline]
fn int_bits(dtype: Dtype, value: i128) -> Option<u64> {
    let (low, high) = dtype.int_range()?;
    (low..=high).contains(&value).then(|| Literal::int(dtype, value).bits)
}

fn int(parameter: &Parameter, annotated: Option<Element>, value: i128) -> Result<Class, Misfit> {
    let dtype = match annotated {
        Some(Element::Value(dtype)) if dtype.is_float() => return float(annotated, value as f64),
        Some(Element::Value(dtype)) => dtype,
        Some(element @ Element::Pointer(_)) => {
            return Err(Misfit::new(
                format!("the int {value}, and the parameter is declared as {element}"),
                "an int is no address: the memory that it points to is not known",
                "pass a tensor",
            ));
        }
        None if value == 1 && parameter.specialize => return Ok(Class::One),
        None if i32::try_from(value).is_ok() => Dtype::I32,
        None if value < 0 || i64::try_from(value).is_ok() => Dtype::I64,
        None => Dtype::U64,
    };
    if int_bits(dtype, value).is_none() {
        if annotated.is_none() {
            return Err(Misfit::new(
                format!("the int {value}, which 64 bits do not hold"),
                format!("expected an int from {} to {}", i64::MIN, u64::MAX),
                "an int at run time has at most 64 bits; a tl.constexpr may have 128",
            ));
        }
        let found = format!("the int {value}, which {dtype} does not hold");
        let note = match dtype.int_range() {
            Some((low, high)) => format!("expected an int from {low} to {high}"),
            None => "expected an int".into(),
        };
        return Err(Misfit::new(found, note, "declare a wider type, or none"));
    }
    Ok(Class::Scalar { dtype, is_multiple: !dtype.is_bool() && is_multiple(parameter, value) })
}

fn float(annotated: Option<Element>, value: f64) -> Result<Class, Misfit> {
    match annotated {
        None => Ok(Class::Scalar { dtype: Dtype::F32, is_multiple: false }),
        Some(Element::Value(dtype @ (Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64))) => {
            Ok(Class::Scalar { dtype, is_multiple: false })
        }
        Some(element) => Err(Misfit::new(
            format!("the float {value:?}, and the parameter is declared as {element}"),
            format!("expected {element}"),
            "pass a value of the declared type, or declare fp32",
        )),
    }
}

fn declared_pointee(annotated: Option<Element>, found: Dtype) -> Result<Dtype, Misfit> {
    match annotated {
        None => Ok(found),
        Some(Element::Pointer(declared)) if declared.bytes() == found.bytes() => Ok(declared),
        Some(element) => Err(Misfit::new(
            format!("a tensor of {found}, and the parameter is declared as {element}"),
            format!("expected {element}"),
            "pass a tensor of the declared type, or remove the annotation",
        )),
    }
}

fn is_multiple(parameter: &Parameter, value: i128) -> bool {
    // A mask replaces a slow 128-bit division: the alignment is a power of two.
    parameter.specialize && parameter.specialize_alignment && value & i128::from(ALIGNMENT - 1) == 0
}

fn contains_pointer(value: &Value<'_>) -> bool {
    match value {
        Value::Pointer(_) => true,
        Value::Tuple(items) => items.iter().any(contains_pointer),
        _ => false,
    }
}

fn encode_constant(value: &Value<'_>, key: &mut Key) {
    match value {
        // Common values need no conversion to a host value.
        Value::Int(value) => key.push_constant(&Constant::Int(*value)),
        Value::Bool(value) => key.push_constant(&Constant::Bool(*value)),
        Value::None => key.push_constant(&Constant::None),
        Value::Constant { value, .. } => key.push_host_value(value),
        _ => {
            if let Some(value) = value.to_host_value() {
                key.push_host_value(&value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parameter: &Parameter, value: &Value<'_>) -> Option<Class> {
        Class::of(parameter, value, Device::Cpu).ok()
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be none")]
    fn scalar(dtype: Dtype, is_multiple: bool) -> Option<Class> {
        Some(Class::Scalar { dtype, is_multiple })
    }

    #[test]
    fn ints_are_typed_by_their_size() {
        let plain = Parameter::new("n", Annotation::None);
        let of = |value: i128| class(&plain, &Value::Int(value));
        assert_eq!(of(1), Some(Class::One));
        assert_eq!(of(0), scalar(Dtype::I32, true));
        assert_eq!(of(-32), scalar(Dtype::I32, true));
        assert_eq!(of(i128::from(i32::MIN)), scalar(Dtype::I32, true));
        assert_eq!(of(i128::from(i32::MAX)), scalar(Dtype::I32, false));
        assert_eq!(of(i128::from(i32::MAX) + 1), scalar(Dtype::I64, true));
        assert_eq!(of(i128::from(u64::MAX)), scalar(Dtype::U64, false));
        assert_eq!(of(i128::from(u64::MAX) + 1), None);
        assert_eq!(of(i128::from(i64::MIN) - 1), None);
        assert_eq!(of(i128::MIN), None);
    }

    #[test]
    fn specialization_can_be_declined() {
        let fixed = Parameter { specialize: false, ..Parameter::new("n", Annotation::None) };
        assert_eq!(class(&fixed, &Value::Int(1)), scalar(Dtype::I32, false));
        assert_eq!(class(&fixed, &Value::Int(16)), scalar(Dtype::I32, false));
        let unaligned = Parameter { specialize_alignment: false, ..Parameter::new("n", Annotation::None) };
        assert_eq!(class(&unaligned, &Value::Int(1)), Some(Class::One));
        assert_eq!(class(&unaligned, &Value::Int(16)), scalar(Dtype::I32, false));
    }

    #[test]
    fn numbers_keep_the_type_that_they_bring() {
        let plain = Parameter::new("n", Annotation::None);
        let wide = Value::Scalar(Literal::int(Dtype::I64, 1));
        assert_eq!(class(&plain, &wide), scalar(Dtype::I64, false));
        assert_eq!(class(&plain, &Value::Scalar(Literal::bool(false))), scalar(Dtype::I1, false));
        assert_eq!(class(&plain, &Value::Float(0.5)), scalar(Dtype::F32, false));
        let double = Parameter::new("n", Annotation::parse("fp64"));
        assert_eq!(class(&double, &Value::Int(3)), scalar(Dtype::F64, false));
        assert_eq!(bits(Dtype::F64, &Value::Int(3)), Some(3.0_f64.to_bits()));
        let byte = Parameter::new("n", Annotation::parse("u8"));
        assert_eq!(class(&byte, &Value::Int(256)), None);
        assert_eq!(class(&byte, &Value::Int(1)), scalar(Dtype::U8, false));
    }

    #[test]
    fn tensors_have_their_device_and_declared_type() {
        let mut memory = [0_u8; 64];
        let region = crate::Region::of(&mut memory);
        let tensor = |device| {
            let address = region.address().next_multiple_of(16);
            Value::Pointer(crate::Pointer { pointee: Dtype::F16, address, region, device })
        };
        let plain = Parameter::new("x", Annotation::None);
        let pointer = |pointee| Some(Class::Pointer { pointee, is_aligned: true });
        assert_eq!(class(&plain, &tensor(Device::Cpu)), pointer(Dtype::F16));
        let elsewhere = Class::of(&plain, &tensor(Device::Cuda(1)), Device::Cpu).map_err(|misfit| misfit.why);
        assert!(matches!(elsewhere, Err(Why::Device(_))));
        let (region, address) = (crate::Region::of(&mut []), 0);
        let empty = crate::Pointer { pointee: Dtype::F16, address, region, device: Device::Cpu };
        assert!(Class::of(&plain, &Value::Pointer(empty), Device::Cuda(0)).is_ok(), "null is on no device");
        let declared = |text| Parameter::new("x", Annotation::parse(text));
        assert_eq!(class(&declared("*bf16"), &tensor(Device::Cpu)), pointer(Dtype::BF16));
        assert_eq!(class(&declared("*fp32"), &tensor(Device::Cpu)), None);
        assert_eq!(class(&declared("tl.constexpr"), &tensor(Device::Cpu)), None);
    }

    #[test]
    fn each_item_of_a_tuple_is_an_argument() {
        let mut memory = [0_u8; 64];
        let region = crate::Region::of(&mut memory);
        let address = region.address().next_multiple_of(16);
        let tensor = |device| Value::Pointer(crate::Pointer { pointee: Dtype::F16, address, region, device });
        let text =
            || Value::Constant { value: HostValue::Constant(Constant::Str("a".into())), is_explicit: false };
        let plain = Parameter::new("t", Annotation::None);
        let of = |parameter: &Parameter, items: Vec<Value<'_>>| {
            argument(parameter, &Value::Tuple(items.into()), Device::Cpu).map_err(|misfit| misfit.place)
        };
        let constant = |constant| Argument::Constexpr(HostValue::Constant(constant));
        let inner = Value::Tuple(Tuple::new(
            vec![Value::Int(32), Value::Bool(true)],
            Some(["a".into(), "b".into()].into()),
        ));
        let items = vec![tensor(Device::Cpu), Value::Int(1), Value::Int(5), Value::None, inner];
        let scalar = |dtype, divisibility| Argument::Scalar { dtype, divisibility };
        let named = vec![scalar(Dtype::I32, 16), scalar(Dtype::I1, 1)];
        let expected = vec![
            Argument::Pointer { pointee: Dtype::F16, divisibility: 16, is_const: false },
            constant(Constant::Int(1)),
            scalar(Dtype::I32, 1),
            constant(Constant::None),
            Argument::Tuple(Tuple::new(named, Some(["a".into(), "b".into()].into()))),
        ];
        assert_eq!(of(&plain, items), Ok(Argument::Tuple(expected.into())));
        let fixed = Parameter { specialize: false, ..Parameter::new("t", Annotation::None) };
        assert_eq!(of(&fixed, vec![Value::Int(1)]), Ok(Argument::Tuple(vec![scalar(Dtype::I32, 1)].into())));
        let bad =
            Value::Tuple(Tuple::new(vec![Value::Int(2), text()], Some(["a".into(), "b".into()].into())));
        assert_eq!(of(&plain, vec![Value::None, bad]), Err("[1].b".into()));
        assert_eq!(of(&plain, vec![tensor(Device::Cuda(0))]), Err("[0]".into()));
        assert_eq!(of(&Parameter::new("t", Annotation::parse("i32")), vec![]), Err(String::new()));
        assert_eq!(
            of(&Parameter::new("t", Annotation::Constexpr), vec![tensor(Device::Cpu)]),
            Err(String::new())
        );
    }

    #[test]
    fn tuples_of_another_form_have_another_key() {
        let plain = Parameter::new("t", Annotation::None);
        let values = [
            Value::Tuple(vec![].into()),
            Value::Tuple(vec![Value::Int(5)].into()),
            Value::Tuple(vec![Value::Int(16)].into()),
            Value::Tuple(vec![Value::Int(1)].into()),
            Value::Tuple(vec![Value::Int(5), Value::Int(5)].into()),
            Value::Tuple(vec![Value::Tuple(vec![Value::Int(5)].into())].into()),
            Value::Tuple(Tuple::new(vec![Value::Int(5)], Some(["a".into()].into()))),
            Value::Tuple(Tuple::new(vec![Value::Int(5)], Some(["b".into()].into()))),
        ];
        let key = |value: &Value<'_>| {
            let mut key = Key::default();
            encode(&plain, value, Device::Cpu, &mut key).expect("it fits");
            key
        };
        for (index, value) in values.iter().enumerate() {
            assert!(values[..index].iter().all(|other| key(other) != key(value)), "{value:?}");
        }
        assert_eq!(key(&Value::Tuple(vec![Value::Int(6)].into())), key(&values[1]));
    }
}
