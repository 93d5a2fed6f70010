//! Converts the arguments of a launch from Python objects to values of the runtime.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple, PyType};
use pyo3::{Borrowed, intern};
use smallvec::SmallVec;
use tilewright_frontend::{
    Constant, DescriptorForm, DescriptorKind, Fields, HostValue, Padding, Tuple, accessor,
};
use tilewright_ir::{Dtype, PixelWindow, Shape};
use tilewright_runtime::{Annotation, Device, ParameterType, Pointer, Signature, Value};

use super::array::{self, Numpy};
use super::classify::{self, Classes, MAX_NESTING, TENSOR_DESCRIPTOR, classify, constant};
use super::function::Function;
use super::memory::{Tensor, Unfit, region};
use super::objects::object_ref;
use super::torch::{self, Torch, Unwatched};
use super::{aggregate, dlpack, live};
use crate::errors::to_exception;

/// The arguments of a launch, one for each parameter. Their regions are valid while the caller
/// keeps the Python objects alive.
pub(crate) type Values = SmallVec<[Value<'static>; 24]>;

/// Converts the arguments of one launch.
pub(crate) struct Converter<'a, 'py> {
    py: Python<'py>,
    signature: &'a Signature,
    torch: Option<&'static Torch>,
    /// True if the kernel is only compiled: a dtype may then replace a tensor.
    is_warmup: bool,
    /// The guard that disables our `TorchFunctionMode` while tensors are read.
    unwatched: Option<Unwatched<'py>>,
    /// The parameters with tensors on `cuda`, while `cuda` is emulated on the CPU.
    on_cuda: SmallVec<[usize; 8]>,
    /// The parameters with other tensors, and these tensors.
    elsewhere: SmallVec<[(usize, Bound<'py, PyAny>); 0]>,
    /// Objects that must live until the launch has ended.
    kept: SmallVec<[Py<PyAny>; 0]>,
    /// True if the conversion of an argument may have moved the memory of earlier ones.
    has_run_code: bool,
    /// The tuples around the object, outermost first: the fields of each tuple, and the index of
    /// the item.
    path: SmallVec<[(Option<Fields>, usize); 0]>,
    /// Copies of the items of all lists and aggregates, which another thread may change.
    lists: SmallVec<[Py<PyTuple>; 0]>,
}

/// Objects that must live until the launch has ended.
#[derive(Default)]
pub(crate) struct Kept {
    _objects: SmallVec<[Py<PyAny>; 0]>,
    _lists: SmallVec<[Py<PyTuple>; 0]>,
}

impl<'a, 'py> Converter<'a, 'py> {
    pub(crate) fn new(py: Python<'py>, signature: &'a Signature, is_warmup: bool) -> Self {
        Self {
            py,
            signature,
            torch: Torch::get(py),
            is_warmup,
            unwatched: None,
            on_cuda: SmallVec::new(),
            elsewhere: SmallVec::new(),
            kept: SmallVec::new(),
            has_run_code: false,
            path: SmallVec::new(),
            lists: SmallVec::new(),
        }
    }

    /// Converts every argument to `values`, which are too large to return. A parameter without an
    /// object gets `None`.
    #[inline]
    pub(crate) fn all<'b>(
        mut self,
        values: &mut Values,
        count: usize,
        argument: impl Fn(usize) -> Option<Borrowed<'b, 'py, PyAny>>,
    ) -> PyResult<Kept> {
        values.clear();
        for index in 0..count {
            values.push(match argument(index) {
                Some(object) => self.value(index, &object)?,
                None => Value::None,
            });
        }
        if self.has_run_code {
            self.look_again(values, argument)?;
        }
        if !self.elsewhere.is_empty() && !self.on_cuda.is_empty() && !self.is_warmup {
            self.check_places()?;
        }
        Ok(self.finish())
    }

    /// Reads the addresses of tensors and arrays again, without running code of the program.
    #[cold]
    fn look_again<'b>(
        &mut self,
        values: &mut Values,
        argument: impl Fn(usize) -> Option<Borrowed<'b, 'py, PyAny>>,
    ) -> PyResult<()> {
        let mut lists = std::mem::take(&mut self.lists).into_iter();
        for (index, value) in values.iter_mut().enumerate() {
            if let Some(object) = argument(index) {
                self.read_again(index, &object, value, &mut lists)?;
            }
        }
        Ok(())
    }

    fn read_again(
        &mut self,
        index: usize,
        object: &Bound<'py, PyAny>,
        value: &mut Value<'static>,
        lists: &mut impl Iterator<Item = Py<PyTuple>>,
    ) -> PyResult<()> {
        if let Value::Tuple(values) = value {
            if values.descriptor().is_some() {
                let base = object.getattr(intern!(self.py, "base"))?;
                return match values.first_mut() {
                    Some(value) => self.read_again(index, &base, value, lists),
                    None => Ok(()),
                };
            }
            let items = if let Ok(tuple) = object.cast::<PyTuple>() {
                tuple.clone()
            } else {
                let Some(items) = lists.next() else { return Ok(()) };
                let tuple = items.bind(self.py).clone();
                self.lists.push(items);
                tuple
            };
            for (item, value) in items.iter_borrowed().zip(values.iter_mut()) {
                self.read_again(index, &item, value, lists)?;
            }
            return Ok(());
        }
        if !matches!(value, Value::Pointer(_)) || is_known_similar(object) {
            return Ok(());
        }
        let is_tensor = self.torch.is_some_and(|torch| torch.is_plain_tensor(object));
        if is_tensor || Numpy::get(self.py).is_some_and(|numpy| numpy.is_exact_array(object)) {
            *value = self.value(index, object)?;
        }
        Ok(())
    }

    /// Fails if the tensors are on two devices, because a GPU could not read a tensor on the CPU.
    #[cold]
    fn check_places(&mut self) -> PyResult<()> {
        let mut on_cpu = Vec::new();
        for (index, tensor) in std::mem::take(&mut self.elsewhere) {
            if torch::is_on_cpu(&tensor)? && !on_cpu.contains(&index) {
                on_cpu.push(index);
            }
        }
        if on_cpu.is_empty() {
            return Ok(());
        }
        self.on_cuda.dedup();
        Err(to_exception(self.py, &self.signature.two_devices(&self.on_cuda, &on_cpu)))
    }

    /// Ends the conversion.
    fn finish(self) -> Kept {
        Kept { _objects: self.kept, _lists: self.lists }
    }

    /// Converts the argument for a parameter.
    #[inline]
    pub(crate) fn value(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        if let Some(torch) = self.torch
            && torch.is_plain_tensor(object)
        {
            return self.tensor(torch, index, object);
        }
        if object.is_exact_instance_of::<PyInt>() {
            return self.int(index, object);
        }
        if object.is_exact_instance_of::<PyFloat>() {
            return Ok(Value::Float(object.extract()?));
        }
        if object.is_exact_instance_of::<PyBool>() {
            return Ok(Value::Bool(object.is_truthy()?));
        }
        if object.is_none() {
            return Ok(Value::None);
        }
        if object.is_exact_instance_of::<PyString>() {
            return Ok(text(object));
        }
        self.other(index, object)
    }

    #[inline]
    fn tensor(
        &mut self,
        torch: &Torch,
        index: usize,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Value<'static>> {
        if self.unwatched.is_none() {
            self.unwatched = torch.unwatched(self.py)?;
        }
        let tensor = match torch::read(torch, object) {
            Ok(tensor) => tensor,
            Err(unfit) => return Err(self.unfit(index, unfit, "tensor")),
        };
        // A tensor without elements has a null pointer and no device.
        if self.unwatched.is_some() && tensor.address != 0 {
            match torch::mark(object)? {
                Some(true) => self.on_cuda.push(index),
                Some(false) | None => self.elsewhere.push((index, object.clone())),
            }
        }
        Ok(pointer(&tensor))
    }

    #[inline]
    fn int(&self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        match object.extract::<i64>() {
            Ok(value) => Ok(Value::Int(value.into())),
            Err(_) => match object.extract::<i128>() {
                Ok(value) => Ok(Value::Int(value)),
                Err(_) => Err(self.invalid(
                    index,
                    "an int of more than 128 bits",
                    "an int at run time has at most 64 bits; a tl.constexpr may have 128",
                )),
            },
        }
    }

    /// Converts an argument of a less common class.
    #[cold]
    fn other(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        let py = self.py;
        if is_known_similar(object)
            && let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))?
        {
            self.has_run_code = true;
            return self.similar(index, object, &dtype);
        }
        if let Some(numpy) = Numpy::get(py)
            && numpy.is_exact_array(object)
        {
            self.kept.push(array::hold(object)?.unbind());
            return match array::read_struct(object) {
                Ok(tensor) => Ok(pointer(&tensor)),
                Err(unfit) => Err(self.unfit(index, unfit, "array")),
            };
        }
        // Triton passes all floats as fp32, such as `np.float64(0.5)`.
        if object.is_instance_of::<PyFloat>() {
            return Ok(Value::Float(object.extract()?));
        }
        if object.is_instance_of::<PyInt>() {
            return self.int(index, object);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return self.items(index, tuple, classify::fields(tuple)?);
        }
        if let Ok(list) = object.cast::<PyList>() {
            let items = list.to_tuple();
            self.lists.push(items.clone().unbind());
            return self.items(index, &items, None);
        }
        let classes = Classes::get(py)?;
        // The conversion of a dtype does not run code of the program.
        if classify::is_scalar_dtype(classes, object)
            && let Some(value) = self.language_type(index, classes, object)?
        {
            return Ok(value);
        }
        self.has_run_code = true;
        if let Some(torch) = self.torch {
            if torch.is_tensor(object) {
                return self.tensor(torch, index, object);
            }
            if self.is_warmup && !self.is_constexpr(index) && torch.is_dtype(object) {
                return self.dtype_for_tensor(index, torch.dtype(object), object);
            }
        }
        if object.is_instance(classes.constexpr.bind(py))? {
            let value = constant(&object.getattr(intern!(py, "value"))?)?;
            return Ok(Value::Constant { value, is_explicit: true });
        }
        if TENSOR_DESCRIPTOR.has_instance(object)? {
            return self.descriptor(index, object);
        }
        if object.is_instance_of::<Function>() {
            return Ok(Value::Constant { value: classify(object)?, is_explicit: true });
        }
        if let Some((fields, items)) = aggregate::instance(object)? {
            self.lists.push(items.clone().unbind());
            let class = object_ref(object.get_type().as_any())?;
            return Ok(match self.items(index, &items, Some(fields.clone()))? {
                Value::Tuple(values) => Value::Tuple(Tuple::instance(values.into_vec(), fields, class)),
                other => other,
            });
        }
        if let Some(numpy) = Numpy::get(py) {
            if numpy.is_array(object) {
                return self.array(index, object);
            }
            if numpy.is_scalar(object) {
                let literal = array::scalar(object)?;
                let refuse = || self.invalid(index, &class_of(object), "convert it to a Python number");
                return literal.map(Value::Scalar).ok_or_else(refuse);
            }
        }
        if object.is_instance_of::<PyString>() {
            return Ok(text(object));
        }
        if let Some(value) = self.language_type(index, classes, object)? {
            return Ok(value);
        }
        self.foreign(index, object)
    }

    /// Converts a type of the language. In a warm-up, an element type replaces a tensor.
    fn language_type(
        &self,
        index: usize,
        classes: &Classes,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Value<'static>>> {
        let Some(ty) = classify::language_type(classes, object)? else { return Ok(None) };
        if self.is_warmup && !self.is_constexpr(index) && ty.is_scalar() {
            return self.dtype_for_tensor(index, ty.element.pointee().or(ty.dtype()), object).map(Some);
        }
        let value = HostValue::Constant(Constant::Type(ty));
        Ok(Some(Value::Constant { value, is_explicit: false }))
    }

    /// Converts a tuple: its items, and the names of its fields.
    fn items(
        &mut self,
        index: usize,
        tuple: &Bound<'py, PyTuple>,
        fields: Option<Fields>,
    ) -> PyResult<Value<'static>> {
        if self.path.len() == MAX_NESTING {
            self.path.clear();
            let found = format!("more than {MAX_NESTING} tuples or lists in one another");
            return Err(self.invalid(index, &found, "pass what is in them as a flat tuple"));
        }
        self.path.push((fields, 0));
        let mut values = Vec::with_capacity(tuple.len());
        for (place, item) in tuple.iter_borrowed().enumerate() {
            if let Some((_, current)) = self.path.last_mut() {
                *current = place;
            }
            values.push(self.value(index, &item)?);
        }
        let fields = self.path.pop().and_then(|(fields, _)| fields);
        Ok(Value::Tuple(Tuple::new(values, fields)))
    }

    /// Converts a tensor descriptor of the host program: its base, shape and strides.
    ///
    /// The program may have changed the parts, so they are checked again.
    fn descriptor(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        let py = self.py;
        let numbers = |name: &Bound<'py, PyString>| object.getattr(name)?.extract::<Vec<i64>>();
        let shape = numbers(intern!(py, "shape"))?;
        let strides = numbers(intern!(py, "strides"))?;
        let block = numbers(intern!(py, "block_shape"))?;
        let padding = match object.getattr(intern!(py, "padding"))?.extract::<String>()?.as_str() {
            "nan" => Padding::Nan,
            _ => Padding::Zero,
        };
        let extent = |extent: &i64| u32::try_from(*extent).ok().filter(|extent| extent.is_power_of_two());
        let block_shape: Option<Shape> = block.iter().map(extent).collect();
        let hint = "make a new TensorDescriptor, which checks its parts";
        let Some(block_shape) = block_shape.filter(|block| !block.is_empty() && block.len() <= 5) else {
            let found = format!("a tensor descriptor with blocks of shape {block:?}");
            return Err(self.invalid(index, &found, hint));
        };
        let layout = match object.getattr_opt(intern!(py, "layout"))? {
            Some(layout) => Some(layout.getattr(intern!(py, "_text"))?.extract::<String>()?.into()),
            None => None,
        };
        let window = window(object)?;
        if window.is_some() && block_shape.len() != 2 {
            let found = format!("an im2col descriptor with blocks of shape {block:?}");
            return Err(self.invalid(index, &found, "give it [pixels, channels] as its block_shape"));
        }
        let form = DescriptorForm { kind: DescriptorKind::Tensor, block_shape, padding, layout, window };
        self.path.push((Some(["base".into()].into()), 0));
        let base = self.value(index, &object.getattr(intern!(py, "base"))?)?;
        self.path.pop();
        let rank = form.rank();
        if let Value::Pointer(pointer) = &base
            && block[block.len() - 1].saturating_mul(pointer.pointee.bytes() as i64) < 16
        {
            let found = format!(
                "a tensor descriptor with blocks of shape {block:?}, whose rows have less than 16 bytes"
            );
            return Err(self.invalid(
                index,
                &found,
                "give its block_shape at least 16 bytes in the last dimension",
            ));
        }
        let is_valid = match (&base, strides.split_last()) {
            (Value::Pointer(pointer), Some((1, outer))) => {
                let bytes = pointer.pointee.bytes() as i64;
                let is_aligned = |stride: &i64| stride.wrapping_mul(bytes) % 16 == 0;
                shape.len() == rank
                    && strides.len() == rank
                    && (self.is_warmup || pointer.address.is_multiple_of(16))
                    && outer.iter().all(is_aligned)
                    && (padding == Padding::Zero || pointer.pointee.is_float())
            }
            _ => false,
        };
        if !is_valid {
            let found = "a tensor descriptor whose parts do not fit each other";
            return Err(self.invalid(index, found, hint));
        }
        let integers = shape.iter().chain(&strides[..rank - 1]).map(|&value| Value::Int(value.into()));
        let parts = std::iter::once(base).chain(integers).collect();
        Ok(Value::Tuple(Tuple::of_descriptor(form.into(), parts)))
    }

    /// Returns the path in the argument of the object that is being converted, such as `[0].name`.
    fn place(&self) -> String {
        self.path.iter().map(|(fields, index)| accessor(fields.as_ref(), *index)).collect()
    }

    /// Converts an object of another library, by the protocols that it offers.
    fn foreign(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        let py = self.py;
        if object.is_instance_of::<PyType>() {
            // A class does not have the protocols of its instances.
            return self.opaque(index, object);
        }
        if object.hasattr(intern!(py, "data_ptr"))?
            && let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))?
        {
            let value = self.similar(index, object, &dtype)?;
            remember_similar(object);
            return Ok(value);
        }
        if object.hasattr(intern!(py, "__cuda_array_interface__"))? {
            return match array::read_cuda(object) {
                Ok(tensor) => Ok(pointer(&tensor)),
                Err(unfit) => Err(self.unfit(index, unfit, "array")),
            };
        }
        if object.hasattr(intern!(py, "__array_interface__"))? {
            return self.array(index, object);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            return match dlpack::read(object) {
                Ok((tensor, capsule)) => {
                    self.kept.push(capsule.unbind());
                    Ok(pointer(&tensor))
                }
                Err(unfit) => Err(self.unfit(index, unfit, "array")),
            };
        }
        if object.hasattr(intern!(py, "__index__"))? {
            return self.int(index, &object.call_method0(intern!(py, "__index__"))?);
        }
        if !self.is_constexpr(index) {
            let module = py.import(intern!(py, "tilewright._buffers"))?;
            let array = module.call_method1(intern!(py, "as_array"), (object,))?;
            if !array.is_none() {
                // An export of the buffer keeps the memory of the array at its address.
                self.kept.push(array.clone().unbind());
                let tensor = array::read(&array);
                return tensor.map_or_else(
                    |unfit| Err(self.unfit(index, unfit, "buffer")),
                    |tensor| Ok(pointer(&tensor)),
                );
            }
        }
        self.opaque(index, object)
    }

    /// Converts an object that a kernel can use only at compile time. Fails unless the parameter is
    /// a `tl.constexpr`.
    fn opaque(&self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        if self.is_constexpr(index) {
            if object.hash().is_err() {
                let found = format!("{}, which has no hash", class_of(object));
                return Err(self.invalid(index, &found, "pass a value that never changes, such as a tuple"));
            }
            return Ok(Value::Constant { value: constant(object)?, is_explicit: false });
        }
        Err(self.invalid(index, &class_of(object), "pass a tensor or a number, or declare a tl.constexpr"))
    }

    fn array(&mut self, index: usize, object: &Bound<'py, PyAny>) -> PyResult<Value<'static>> {
        if object.get_type().name()?.to_cow()? == "MaskedArray" {
            let hint = "a kernel would read what is masked: pass `x.filled(value)`, and the mask as an array of its own";
            return Err(self.invalid(index, "a masked array of numpy", hint));
        }
        if Numpy::get(self.py).is_some_and(|numpy| numpy.is_array(object)) {
            self.kept.push(array::hold(object)?.unbind());
        } else if let Ok(export) = PyMemoryView::from(object) {
            // `bytearray` and `array.array` refuse to be resized while an export exists.
            self.kept.push(export.into_any().unbind());
        }
        match array::read(object) {
            Ok(tensor) => Ok(pointer(&tensor)),
            Err(unfit) => Err(self.unfit(index, unfit, "array")),
        }
    }

    /// Converts an object that behaves like a tensor: it has `data_ptr()` and the dtype `stated`.
    fn similar(
        &mut self,
        index: usize,
        object: &Bound<'py, PyAny>,
        stated: &Bound<'py, PyAny>,
    ) -> PyResult<Value<'static>> {
        let dtype = match self.torch.and_then(|torch| torch.dtype(stated)) {
            Some(dtype) => Some(dtype),
            None => classify::language_type(Classes::get(self.py)?, stated)?.and_then(|ty| ty.dtype()),
        };
        let Some(dtype) = dtype else {
            return Err(self.unfit(index, Unfit::Dtype(stated.to_string()), "tensor"));
        };
        match torch::read_similar(object, dtype) {
            Ok(tensor) if self.is_warmup && tensor.address == 0 => {
                self.dtype_for_tensor(index, Some(dtype), object)
            }
            Ok(tensor) => Ok(pointer(&tensor)),
            Err(Unfit::NoMemory) if let Some(torch) = self.torch => {
                let address = object.call_method0(intern!(self.py, "data_ptr"))?.extract()?;
                match live::read_address(self.py, torch, address, dtype)? {
                    Some((tensor, owner)) => {
                        self.kept.extend(owner);
                        Ok(pointer(&tensor))
                    }
                    None => Err(self.unfit(index, Unfit::NoMemory, "tensor")),
                }
            }
            Err(unfit) => Err(self.unfit(index, unfit, "tensor")),
        }
    }

    /// Returns a null pointer for a dtype that replaces a tensor in a warm-up.
    fn dtype_for_tensor(
        &self,
        index: usize,
        dtype: Option<Dtype>,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Value<'static>> {
        let refuse = || self.unfit(index, Unfit::Dtype(object.to_string()), "tensor");
        let dtype = dtype.ok_or_else(refuse)?;
        let active = Device::active().map_err(|error| to_exception(self.py, &error))?;
        let device = active.memory();
        Ok(pointer(&Tensor {
            device,
            dtype,
            address: 0,
            allocation: (0, 0),
            is_read_only: false,
            is_of_torch: false,
        }))
    }

    fn is_constexpr(&self, index: usize) -> bool {
        self.signature
            .parameters
            .get(index)
            .is_some_and(|parameter| parameter.annotation == Annotation::Constexpr)
    }

    #[cold]
    fn invalid(&self, index: usize, found: &str, hint: &str) -> PyErr {
        to_exception(self.py, &self.signature.invalid_argument(index, &self.place(), found, hint))
    }

    #[cold]
    fn unfit(&self, index: usize, unfit: Unfit, what: &str) -> PyErr {
        match unfit {
            Unfit::Raised(error) => error,
            Unfit::NoMemory => {
                let found = format!(
                    "a {what} whose memory is not known: it has no storage that says its address and size"
                );
                self.invalid(
                    index,
                    &found,
                    "pass a dense tensor that owns its memory: `x.to_dense()`, `x.contiguous()`",
                )
            }
            Unfit::Malformed(found) => {
                let article = if what.starts_with('a') { "an" } else { "a" };
                let hint = "the library that made it is at fault: pass a copy";
                self.invalid(index, &format!("{article} {what} {found}"), hint)
            }
            Unfit::Dtype(name) => {
                let article = if what.starts_with('a') { "an" } else { "a" };
                let hint = "convert it to a type that kernels have, such as float32 or int32";
                self.invalid(index, &format!("{article} {what} of {name}"), hint)
            }
            Unfit::Negated => self.invalid(
                index,
                "a view that torch negates when it reads it, which a kernel would not",
                "pass `x.resolve_neg()`, which is a copy",
            ),
            Unfit::Device(found) => {
                let selected = Device::selected().ok().flatten();
                let expected = selected.unwrap_or_default().memory().to_string();
                to_exception(self.py, &self.signature.wrong_device(index, &self.place(), &found, &expected))
            }
        }
    }
}

/// The classes of earlier arguments that behaved like tensors. Arguments of these classes skip
/// other checks.
static SIMILAR: [PyOnceLock<Py<PyType>>; 4] = [const { PyOnceLock::new() }; 4];

fn is_known_similar(object: &Bound<'_, PyAny>) -> bool {
    let (py, class) = (object.py(), object.get_type_ptr().cast());
    SIMILAR.iter().map_while(|known| known.get(py)).any(|known| known.as_ptr() == class)
}

#[cold]
fn remember_similar(object: &Bound<'_, PyAny>) {
    let mut class = object.get_type().unbind();
    for place in &SIMILAR {
        match place.set(object.py(), class) {
            Ok(()) => break,
            Err(refused) => class = refused,
        }
    }
}

fn text(object: &Bound<'_, PyAny>) -> Value<'static> {
    let constant = classify::plain(object).unwrap_or(Constant::None);
    Value::Constant { value: HostValue::Constant(constant), is_explicit: false }
}

fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".into(), |name| format!("of class '{name}'"))
}

/// Converts the memory of a tensor to a pointer.
#[inline]
fn pointer(tensor: &Tensor) -> Value<'static> {
    Value::Pointer(Pointer {
        pointee: tensor.dtype,
        address: tensor.address as u64,
        region: region(tensor),
        device: tensor.device,
    })
}

/// Returns the type of an argument as in a signature, such as `*fp32`, `i32` or `constexpr`.
#[pyfunction]
pub(crate) fn describe_argument(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = object.py();
    let signature = Signature {
        name: "kernel".into(),
        parameters: vec![tilewright_runtime::Parameter::new("argument", Annotation::None)],
        source: None,
    };
    Ok(type_of(&Converter::new(py, &signature, true).value(0, object)?).name())
}

fn type_of(value: &Value<'_>) -> ParameterType {
    match value {
        Value::Pointer(pointer) => ParameterType::Pointer(pointer.pointee),
        Value::Int(value) => ParameterType::Scalar(match (i32::try_from(*value), i64::try_from(*value)) {
            (Ok(_), _) => Dtype::I32,
            (_, Ok(_)) => Dtype::I64,
            _ => Dtype::U64,
        }),
        Value::Float(_) => ParameterType::Scalar(Dtype::F32),
        Value::Bool(_) => ParameterType::Scalar(Dtype::I1),
        Value::Scalar(literal) => ParameterType::Scalar(literal.dtype),
        Value::None | Value::Constant { .. } => ParameterType::Constexpr,
        Value::Tuple(items) => ParameterType::Tuple(items.map(type_of)),
    }
}

/// Returns the window of an im2col descriptor; `None` for other descriptors.
fn window(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<PixelWindow>>> {
    let py = object.py();
    let Some(lower) = object.getattr_opt(intern!(py, "pixel_box_lower_corner"))? else { return Ok(None) };
    let upper = object.getattr(intern!(py, "pixel_box_upper_corner"))?;
    let steps = object.getattr(intern!(py, "element_strides"))?;
    let window = PixelWindow {
        lower: lower.extract::<Vec<i32>>()?.into(),
        upper: upper.extract::<Vec<i32>>()?.into(),
        steps: steps.extract::<Vec<u32>>()?.into(),
    };
    Ok(Some(Arc::new(window)))
}
