//! Creates and caches the tensor maps of a launch, by plans of the compiler.

use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;
use tilewright_base::memory::Region;
use tilewright_compiler::{GpuCode, LaunchInteger, SwizzleMode, TensorAccess, TensorMapPlan};
use tilewright_cuda::{
    self as cuda, MAX_GRID, Parameters, TensorMapElement, TensorMapFill, TensorMapSource, TensorMapSwizzle,
    TensorMapWindow,
};
use tilewright_ir::{Dtype, Element, PixelWindow};
use tilewright_sim as sim;

use crate::Error;

/// The maximum number of argument sets whose maps are cached.
const MAX_ENTRIES: usize = 32;
/// The granularity of a copy to a tensor, in bytes.
const CHUNK: i64 = 16;
/// The maximum number of axes of a tensor.
const MAX_AXES: usize = 5;

/// The size in bytes of a sector, the unit in which the L2 cache delivers data.
const SECTOR: u64 = 32;
/// The number of blocks of a pair, a cluster whose blocks share their tensor copies.
pub(crate) const PAIR: u32 = 2;
type Map = [u8; sim::TENSOR_MAP_BYTES];

/// The accesses to tensors that no map can describe, without duplicates. Each has its reason.
pub(crate) type Unfit = SmallVec<[(TensorAccess, &'static str); 2]>;

/// The number of blocks along each axis, and whether they run in pairs.
pub(crate) type Blocks = ([u32; 3], bool);

/// The only reason that the checks of the compiler and of this module do not exclude.
const REFUSED: &str = "its address or a stride is no multiple of 16 bytes, or too large";

/// The maps of a launch, or the accesses without maps.
#[derive(Debug)]
struct Maps {
    maps: Result<SmallVec<[Map; 3]>, Unfit>,
    /// True if copies read a tensor with a stride that is not a multiple of a sector. Its rows may
    /// begin within a sector, so blocks run in pairs if they can.
    has_split_sectors: bool,
}

/// The plans and offsets of the tensor maps of a kernel.
#[derive(Debug)]
pub struct TensorMaps {
    plans: Vec<TensorMapPlan>,
    /// The offset of each argument in the buffer of parameters, and its type.
    arguments: Vec<(usize, Element)>,
    /// The indices of the arguments that the maps depend on.
    used: SmallVec<[u32; 8]>,
    /// The offset of each map in the buffer of parameters.
    places: SmallVec<[usize; 3]>,
    /// The offset of the number of programs in the buffer of parameters. `None` unless the blocks
    /// may run in pairs.
    programs: Option<usize>,
    /// The minimum odd number of programs along the first axis for pairs.
    least_odd: u32,
    /// The context whose driver encodes the maps; `None` in the simulator.
    context: Option<cuda::Context>,
    /// The cached maps, each with the values of the `used` arguments. The newest is last.
    known: Mutex<Vec<(SmallVec<[i64; 8]>, Maps)>>,
}

impl TensorMaps {
    /// Creates the plans of compiled code, if it has maps. `place` maps the index of a parameter to
    /// its offset in the buffer of parameters.
    pub(crate) fn new(
        code: &GpuCode,
        context: Option<cuda::Context>,
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
            programs: code.has_pairs().then(|| place(first + plans.len())).transpose()?,
            least_odd: code.target.tuning.odd_paired_programs,
            arguments,
            context,
            known: Mutex::default(),
        }))
    }

    /// Appends the maps, and the number of programs if the kernel has this parameter, to the
    /// parameters of a launch. Blocks only run in pairs if `can` is true. If no map can describe
    /// some tensors, returns the accesses to these and appends nothing. Only the simulator reads
    /// `regions`, the memory that the kernel may access.
    pub(crate) fn append(
        &self,
        grid: [u32; 3],
        can: bool,
        regions: &[Region<'_>],
        parameters: &mut Parameters,
    ) -> Result<Result<Blocks, Unfit>, Error> {
        let bytes = parameters.as_bytes();
        let key: SmallVec<[i64; 8]> = self.used.iter().map(|number| self.argument(bytes, *number)).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if self.context.is_none() {
            // In the simulator, the base of a map must be in a region, and each launch has its own
            // regions.
            known.clear();
        }
        let place = if let Some(place) = known.iter().rposition(|(other, _)| *other == key) {
            place
        } else {
            let maps = self.make_all(bytes, regions)?;
            if known.len() == MAX_ENTRIES {
                known.remove(0);
            }
            known.push((key, maps));
            known.len() - 1
        };
        let Maps { maps, has_split_sectors } = &known[place].1;
        let maps = match maps {
            Ok(maps) => maps,
            Err(unfit) => return Ok(Err(unfit.clone())),
        };
        for (map, place) in maps.iter().zip(&self.places) {
            parameters.push_at(map, *place);
        }
        Ok(Ok(self.append_programs(grid, can && *has_split_sectors, parameters)))
    }

    fn make_all(&self, parameters: &[u8], regions: &[Region<'_>]) -> Result<Maps, Error> {
        let (mut maps, mut unfit, mut has_split_sectors) = (SmallVec::new(), Unfit::new(), false);
        for plan in &self.plans {
            let access = plan.access();
            match self.make(plan, parameters, regions)? {
                Ok((tensor, map)) => {
                    let is_split = tensor.strides.iter().any(|stride| stride % SECTOR != 0);
                    has_split_sectors |= !access.is_written && is_split;
                    maps.push(map);
                }
                Err(reason) if unfit.iter().all(|(other, _)| *other != access) => {
                    unfit.push((access, reason));
                }
                Err(_) => {}
            }
        }
        Ok(Maps { maps: if unfit.is_empty() { Ok(maps) } else { Err(unfit) }, has_split_sectors })
    }

    /// Creates the map of a plan with its tensor, or returns the reason why no map can describe the
    /// tensor.
    fn make(
        &self,
        plan: &TensorMapPlan,
        parameters: &[u8],
        regions: &[Region<'_>],
    ) -> Result<Result<(Tensor, Map), &'static str>, Error> {
        let argument = |number| self.argument(parameters, number);
        let tensor = match Tensor::new(plan, argument) {
            Ok(tensor) => tensor,
            Err(reason) => return Ok(Err(reason)),
        };
        // A GPU faults if the base of a map is not mapped memory, even without a copy.
        let is_memory = match self.context {
            Some(_) if tensor.address == argument(plan.base).cast_unsigned() => true,
            Some(context) => context.is_mapped(tensor.address)?,
            None => regions.iter().any(|region| region.contains(tensor.address, 1)),
        };
        if !is_memory {
            return Ok(Err("it begins outside of the tensor's memory"));
        }
        let map = match self.context {
            Some(context) => tensor.encoded(context)?,
            None => tensor.simulated(),
        };
        Ok(map.map(|map| (tensor, map)).ok_or(REFUSED))
    }

    /// Returns whether blocks may run in pairs.
    pub(crate) fn has_pairs(&self) -> bool {
        self.programs.is_some()
    }

    /// Appends the number of programs if the blocks of this launch run in pairs, else 0, for a
    /// kernel with this parameter. Returns the blocks.
    fn append_programs(&self, grid: [u32; 3], wants_pairs: bool, parameters: &mut Parameters) -> Blocks {
        let Some(place) = self.programs else { return (grid, false) };
        let [x, y, z] = grid;
        // With an odd number of programs, the last pair has an idle block, which may be half of a
        // small grid.
        let is_many = (self.least_odd..MAX_GRID[0]).contains(&x);
        let is_paired = wants_pairs && (x.is_multiple_of(PAIR) || is_many);
        let programs = if is_paired { x } else { 0 };
        parameters.push_at(&programs.to_le_bytes(), place);
        let blocks = if is_paired { x.next_multiple_of(PAIR) } else { x };
        ([blocks, y, z], is_paired)
    }

    /// Returns an argument that is a pointer or an integer.
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
}

/// A tensor and the boxes that its copies move. The contiguous axis is the first.
struct Tensor {
    element: Dtype,
    address: u64,
    shape: SmallVec<[u64; MAX_AXES]>,
    /// The strides in bytes of all axes but the first.
    strides: SmallVec<[u64; MAX_AXES]>,
    block: SmallVec<[u32; MAX_AXES]>,
    swizzle: SwizzleMode,
    fills_nan: bool,
    /// The pixels of an im2col copy, with the axes of the window in the order of `shape`.
    pixels: Option<(u32, PixelWindow)>,
}

impl Tensor {
    /// Computes the tensor from the arguments, or returns the reason why no map can describe it.
    fn new(plan: &TensorMapPlan, argument: impl Fn(u32) -> i64) -> Result<Self, &'static str> {
        const TOO_LARGE: &str = "its extents or strides overflow";
        let (Some(copied), Some(contiguous)) = (&plan.copied, plan.contiguous_axis()) else {
            unreachable!("the compiler has planned the copies of each map");
        };
        if plan.nonnegative.iter().any(|number| argument(*number) < 0) {
            return Err("a number that its indices are made of is negative");
        }
        let order = || {
            [contiguous].into_iter().chain((0..plan.extents.len()).rev().filter(|axis| *axis != contiguous))
        };
        let bytes = plan.element.bytes() as i64;
        let in_bytes = |number: &LaunchInteger| {
            number.value(&argument).and_then(|number| number.checked_mul(bytes)).ok_or(TOO_LARGE)
        };
        let address = argument(plan.base).checked_add(in_bytes(&plan.offset)?).ok_or(TOO_LARGE)?;
        // Coordinates are signed 32-bit numbers, and a map cannot describe an empty tensor.
        let extent = |axis: usize| match plan.extents[axis].value(&argument) {
            // A store of gathered rows replaces negative row indices by 2^31 - 1, so the tensor
            // must not have this row.
            Some(0x8000_0000) if copied.extents[axis] == 1 => Err(TOO_LARGE),
            Some(extent @ 1..=0x8000_0000) => Ok(extent as u64),
            Some(..=0) => Err("it is empty"),
            _ => Err(TOO_LARGE),
        };
        // A copy to the tensor writes whole chunks, and so would overwrite the bytes after a row.
        let row = in_bytes(&plan.extents[contiguous])?;
        if copied.is_written && plan.has_bounded_rows() && row % CHUNK != 0 {
            return Err("its rows end within 16 bytes");
        }
        let stride = |axis: usize| {
            u64::try_from(in_bytes(&plan.strides[axis])?).map_err(|_| "its rows go backwards in memory")
        };
        Ok(Self {
            element: plan.element,
            address: u64::try_from(address)
                .ok()
                .filter(|address| *address != 0)
                .ok_or("it has no address")?,
            shape: order().map(extent).collect::<Result<_, _>>()?,
            strides: order().skip(1).map(stride).collect::<Result<_, _>>()?,
            block: order().map(|axis| copied.extents[axis]).collect(),
            swizzle: copied.swizzle,
            fills_nan: copied.fills_nan,
            pixels: copied.pixels.clone().map(|(count, mut window)| {
                window.lower.reverse();
                window.upper.reverse();
                window.steps.reverse();
                (count, window)
            }),
        })
    }

    /// Returns the distances between neighboring pixels of an im2col copy.
    fn steps(&self) -> Option<Vec<u32>> {
        self.pixels.as_ref().map(|(_, window)| window.steps.to_vec())
    }

    /// Encodes the map for the simulator. Returns `None` if the map is invalid.
    fn simulated(&self) -> Option<Map> {
        use sim::TensorDataType as T;
        let map = sim::TensorMap {
            data_type: match self.element {
                // A reducing copy compares elements as this type.
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
            element_strides: self.steps().unwrap_or_else(|| vec![1; self.shape.len()]),
            swizzle: match self.swizzle {
                SwizzleMode::None => sim::Swizzle::None,
                SwizzleMode::Bytes32 => sim::Swizzle::Bytes32,
                SwizzleMode::Bytes64 => sim::Swizzle::Bytes64,
                SwizzleMode::Bytes128 => sim::Swizzle::Bytes128,
            },
            fill: if self.fills_nan { sim::OutOfBoundsFill::Nan } else { sim::OutOfBoundsFill::Zero },
            pixels: self.pixels.as_ref().map(|(pixels, window)| sim::PixelBox {
                lower: window.lower.to_vec(),
                upper: window.upper.to_vec(),
                pixels: *pixels,
            }),
        };
        map.encode().ok()
    }

    /// Calls the driver to encode the map. Returns `None` if the driver refuses the map.
    fn encoded(&self, context: cuda::Context) -> Result<Option<Map>, Error> {
        use TensorMapElement as T;
        let source = TensorMapSource {
            element: match self.element {
                // A reducing copy compares elements as this type.
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
            fill: if self.fills_nan { TensorMapFill::Nan } else { TensorMapFill::Zero },
            ..TensorMapSource::default()
        };
        let made = match &self.pixels {
            None => cuda::TensorMap::encode(context, &source),
            Some((pixels, PixelWindow { lower, upper, steps })) => {
                let window = TensorMapWindow { lower, upper, channels: self.block[0], pixels: *pixels };
                let source = TensorMapSource { block: &[], steps, ..source };
                cuda::TensorMap::encode_im2col(context, &source, &window)
            }
        };
        match made {
            Ok(map) => {
                Ok(Some(map.as_bytes().try_into().expect("tensor maps of GPU and simulator have one size")))
            }
            Err(cuda::Error::TensorMap(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
