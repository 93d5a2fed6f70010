//! The tensor maps of a launch: made of its arguments as the compiled kernel says, and kept for launches with the same ones.

use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;
use tilewright_compiler::{GpuCode, SwizzleMode, TensorMapPlan};
use tilewright_cuda::{
    self as cuda, Parameters, TensorMapElement, TensorMapFill, TensorMapSource, TensorMapSwizzle,
};
use tilewright_ir::{Dtype, Element};
use tilewright_sim as sim;

use crate::Error;

/// So many sets of arguments are remembered.
const MOST_ENTRIES: usize = 32;
/// What copies to a tensor write at a time, in bytes.
const CHUNK: i64 = 16;
/// The most axes of a tensor.
const MOST_AXES: usize = 5;

/// The bytes of a tensor map.
type Map = [u8; sim::TENSOR_MAP_BYTES];
/// Those of a launch; none if a tensor is none that a map can describe.
type Maps = Option<SmallVec<[Map; 3]>>;

/// How the tensor maps of a kernel are made.
#[derive(Debug)]
pub struct TensorMaps {
    plans: Vec<TensorMapPlan>,
    /// Where the arguments lie among the parameters, and what they are.
    arguments: Vec<(usize, Element)>,
    /// The arguments that the maps are made of.
    used: SmallVec<[u32; 8]>,
    /// Where each map lies among the parameters.
    places: SmallVec<[usize; 3]>,
    is_simulated: bool,
    /// The latest one last.
    known: Mutex<Vec<(SmallVec<[i64; 8]>, Maps)>>,
}

impl TensorMaps {
    /// Of code; nothing if it takes none. The function gives the place of a parameter by its number.
    pub(crate) fn new(
        code: &GpuCode,
        is_simulated: bool,
        place: impl Fn(usize) -> Result<usize, Error>,
    ) -> Result<Option<Self>, Error> {
        let plans = code.tensor_maps();
        if plans.is_empty() {
            return Ok(None);
        }
        let mut used: SmallVec<[u32; 8]> = SmallVec::new();
        for plan in plans {
            used.push(plan.base);
            used.extend(plan.nonnegative.iter().copied());
            let numbers = plan.extents.iter().chain(&plan.strides).chain([&plan.offset]);
            used.extend(
                numbers
                    .flat_map(|number| number.0.iter().flat_map(|product| product.arguments.iter().copied())),
            );
        }
        used.sort_unstable();
        used.dedup();
        let arguments = code.arguments();
        let first = arguments.len();
        Ok(Some(Self {
            plans: plans.to_vec(),
            used,
            places: (0..plans.len()).map(|number| place(first + number)).collect::<Result<_, _>>()?,
            arguments,
            is_simulated,
            known: Mutex::default(),
        }))
    }

    /// Appends the maps to the parameters of a launch; says no if a tensor is none that a map can describe.
    pub(crate) fn append(&self, parameters: &mut Parameters) -> Result<bool, Error> {
        let bytes = parameters.as_bytes();
        let key: SmallVec<[i64; 8]> = self.used.iter().map(|number| self.argument(bytes, *number)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = if let Some(place) = known.iter().rposition(|(other, _)| *other == key) {
            place
        } else {
            let maps = self.plans.iter().map(|plan| self.make(plan, bytes)).collect::<Result<Maps, _>>()?;
            if known.len() == MOST_ENTRIES {
                known.remove(0);
            }
            known.push((key, maps));
            known.len() - 1
        };
        let Some(maps) = &known[place].1 else { return Ok(false) };
        for (map, place) in maps.iter().zip(&self.places) {
            parameters.push_at(map, *place);
        }
        Ok(true)
    }

    /// An argument, a pointer or an integer.
    fn argument(&self, parameters: &[u8], number: u32) -> i64 {
        let (place, element) = self.arguments[number as usize];
        let word = |bytes: usize| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&parameters[place..place + bytes]);
            i64::from_le_bytes(word)
        };
        match element {
            Element::Value(Dtype::I32) => i64::from(word(4) as i32),
            Element::Value(_) | Element::Pointer(_) => word(8),
        }
    }

    /// A tensor map; nothing if there is none for these arguments.
    fn make(&self, plan: &TensorMapPlan, parameters: &[u8]) -> Result<Option<Map>, Error> {
        let Some(tensor) = Tensor::new(plan, |number| self.argument(parameters, number)) else {
            return Ok(None);
        };
        if self.is_simulated { Ok(tensor.simulated()) } else { tensor.encoded() }
    }
}

/// A tensor and its boxes, the contiguous axis first.
struct Tensor {
    element: Dtype,
    address: u64,
    shape: SmallVec<[u64; MOST_AXES]>,
    /// In bytes, of all axes but the first.
    strides: SmallVec<[u64; MOST_AXES]>,
    block: SmallVec<[u32; MOST_AXES]>,
    swizzle: SwizzleMode,
}

impl Tensor {
    fn new(plan: &TensorMapPlan, argument: impl Fn(u32) -> i64) -> Option<Self> {
        let copied = plan.copied.as_ref()?;
        if plan.nonnegative.iter().any(|number| argument(*number) < 0) {
            return None;
        }
        let contiguous = plan.contiguous_axis()?;
        let order = || {
            [contiguous].into_iter().chain((0..plan.extents.len()).rev().filter(|axis| *axis != contiguous))
        };
        let bytes = plan.element.bytes() as i64;
        let distance = plan.offset.value(&argument)?.checked_mul(bytes)?;
        let address = argument(plan.base).checked_add(distance)?;
        // Coordinates have 32 bits; what is empty or goes backwards is no tensor.
        let extent = |axis: usize| {
            let extent = plan.extents[axis].value(&argument)?;
            (1..=1 << 31).contains(&extent).then_some(extent as u64)
        };
        // A copy to the tensor writes what of a chunk is behind the end of a row as well.
        let row = plan.extents[contiguous].value(&argument)?.checked_mul(bytes)?;
        if copied.is_written && plan.has_bounded_rows() && row % CHUNK != 0 {
            return None;
        }
        let stride =
            |axis: usize| u64::try_from(plan.strides[axis].value(&argument)?.checked_mul(bytes)?).ok();
        Some(Self {
            element: plan.element,
            address: u64::try_from(address).ok().filter(|address| *address != 0)?,
            shape: order().map(extent).collect::<Option<_>>()?,
            strides: order().skip(1).map(stride).collect::<Option<_>>()?,
            block: order().map(|axis| copied.extents[axis]).collect(),
            swizzle: copied.swizzle,
        })
    }

    /// As the simulator has it.
    fn simulated(&self) -> Option<Map> {
        use sim::TensorDataType as T;
        let map = sim::TensorMap {
            data_type: match self.element {
                // A reduction compares numbers with their signs.
                Dtype::I32 => T::S32,
                Dtype::I64 => T::S64,
                Dtype::F16 => T::F16,
                Dtype::BF16 => T::Bf16,
                Dtype::F32 => T::F32,
                Dtype::F64 => T::F64,
                other => match other.bytes() {
                    1 => T::U8,
                    2 => T::U16,
                    4 => T::U32,
                    _ => T::U64,
                },
            },
            address: self.address,
            extents: self.shape.to_vec(),
            strides: self.strides.to_vec(),
            box_extents: self.block.to_vec(),
            element_strides: vec![1; self.shape.len()],
            swizzle: match self.swizzle {
                SwizzleMode::None => sim::Swizzle::None,
                SwizzleMode::Bytes32 => sim::Swizzle::Bytes32,
                SwizzleMode::Bytes64 => sim::Swizzle::Bytes64,
                SwizzleMode::Bytes128 => sim::Swizzle::Bytes128,
            },
            fill: sim::OutOfBoundsFill::Zero,
        };
        map.encode().ok()
    }

    /// As the driver encodes it.
    fn encoded(&self) -> Result<Option<Map>, Error> {
        use TensorMapElement as T;
        let source = TensorMapSource {
            element: match self.element {
                // A reduction compares numbers with their signs.
                Dtype::I32 => T::I32,
                Dtype::I64 => T::I64,
                Dtype::F16 => T::F16,
                Dtype::BF16 => T::BF16,
                Dtype::F32 => T::F32,
                Dtype::F64 => T::F64,
                other => match other.bytes() {
                    1 => T::U8,
                    2 => T::U16,
                    4 => T::U32,
                    _ => T::U64,
                },
            },
            address: self.address,
            shape: &self.shape,
            strides: &self.strides,
            block: &self.block,
            swizzle: match self.swizzle {
                SwizzleMode::None => TensorMapSwizzle::None,
                SwizzleMode::Bytes32 => TensorMapSwizzle::Bytes32,
                SwizzleMode::Bytes64 => TensorMapSwizzle::Bytes64,
                SwizzleMode::Bytes128 => TensorMapSwizzle::Bytes128,
            },
            fill: TensorMapFill::Zero,
            ..TensorMapSource::default()
        };
        match cuda::TensorMap::encode(cuda::Driver::get()?, &source) {
            Ok(map) => {
                Ok(Some(map.as_bytes().try_into().expect("a tensor map has as many bytes everywhere")))
            }
            Err(cuda::Error::TensorMap(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
