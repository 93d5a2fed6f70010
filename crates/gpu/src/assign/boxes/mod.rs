//! Finds the loads and stores that access a box of a tensor. The address of a box is a pointer
//! argument plus `index * stride` for each axis; one stride is 1. A mask may only bound indices.
//! The launch makes a tensor map from the strides and extents. The kernel computes the coordinates
//! of the box.
//!
//! ```text
//! load x + (m * 128 + rows) * stride + (k * 64 + columns), columns < K - k * 64
//!     a tensor with extents [unbounded, K] and strides [stride, 1], and a box at [m * 128, k * 64]
//! ```
//! A tensor copy loads zeros where the box exceeds the tensor. So an index may be negative only if
//! the mask excludes negative indices ([`sign`]). An index may wrap around, as in
//! `(m * 128 + rows) % M`. It counts as bounded by `M` if elements past the bound are never stored
//! ([`demand`]).
//!
//! Stores and atomic operations have two more conditions. The box may not begin before the tensor,
//! even if a mask excludes those elements. Alignment of the strides must be known at compile time.
//!
//! If the launch cannot make some maps, it runs a variant that is compiled
//! [`without`](Launcher::without) them.
//!
//! Two submodules find further kinds of boxes:
//!
//! - [`device_maps`]: the kernel makes the tensor map before a loop around the access.
//! - [`rows`]: gathered rows, as in `desc.gather`.
//!
//! The op `tensor_box` records a box. Later passes decide which accesses become tensor copies.

mod demand;
mod device_maps;
mod masks;
mod rows;
mod sign;
mod stated;

use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tilewright_ir::analysis::polynomial::Monomial;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term, Wrap};
use tilewright_ir::{
    Definition, Dtype, Function, Inst, MemoryScope, MemorySemantics, Module, Op, Value, constant_of,
};

use super::coalescing::Infos;
pub use stated::{places_of_copy, rank_of_tensor};

use crate::launcher::Launcher;
use crate::remarks::{self, RemarkReason};
use demand::{Structure, is_kernel_parameter, is_needed_only_below};
use device_maps::MapInputs;
pub use device_maps::{DeviceMap, MapId};
use masks::{Bound, bounds};
use rows::index_along;
use sign::Proof;
use tilewright_gpu_ir::box_layout::MAX_BOX_EXTENT;
use tilewright_gpu_ir::target::{Feature, GpuTarget};
use tilewright_gpu_ir::tuning::Tuning;
use tilewright_gpu_ir::{
    LaunchInteger, LaunchTerm, TensorAccess, TensorMapPlan, UNBOUNDED, is_tensor_reduction,
};

/// Addresses, strides and row starts are multiples of this many bytes.
const ALIGNMENT: u64 = 16;
/// The assumed divisibility of arguments that are not specialized as multiples of 16. If a stride
/// is not aligned, the launch runs the variant without the map.
const UNSPECIALIZED: u64 = 8;
/// The maximum number of axes of a tensor map.
const MAX_AXES: usize = 5;
/// The maximum constant factor of a term that joins the coordinate along the contiguous axis. A
/// term with a larger factor becomes a separate axis.
const MAX_CONTIGUOUS_STEP: i128 = 4096;

#[derive(Clone, Debug)]
pub struct TensorBox {
    pub map: MapId,
    /// The coordinates of the first element of the box.
    pub coordinates: SmallVec<[Form; 5]>,
}

#[derive(Default, Debug)]
pub struct TensorBoxes {
    /// The tensor maps that the launch makes.
    pub maps: Vec<TensorMapPlan>,
    /// The tensor maps that the kernel makes.
    pub device_maps: Vec<DeviceMap>,
    of_access: SecondaryMap<Inst, Option<TensorBox>>,
    /// The map of each tensor copy that the program states.
    pub of_copy: FxHashMap<Inst, MapId>,
}

impl TensorBoxes {
    /// Finds the boxes of a kernel, if the target has tensor copies.
    ///
    /// Without maps of the launcher, only accesses whose map the kernel makes have boxes. In a
    /// kernel without dots, only gathered rows and atomic operations have boxes: its other accesses
    /// do not get faster.
    pub fn new(module: &Module, infos: &Infos, target: GpuTarget, launcher: Launcher<'_>) -> Self {
        let function = module.kernel();
        let mut boxes = Self::default();
        let (mut accesses, mut has_dots) = (Vec::new(), false);
        function.walk(function.entry, &mut |inst| match &function.insts[inst].op {
            Op::Load { volatile: false, .. } | Op::Store { .. } => accesses.push(inst),
            Op::AtomicRmw { .. } if is_reduction(function, inst) => accesses.push(inst),
            Op::Dot { .. } | Op::DotScaled { .. } => has_dots = true,
            // tidy: wildcard because no other op accesses a box
            _ => {}
        });
        let obstacle = if !target.features.has(Feature::Tma) {
            Some("the target has no tensor memory accelerator")
        } else if !launcher.makes_tensor_maps {
            Some("the launcher makes no tensor maps (`--tensor-maps` requests them)")
        } else {
            None
        };
        let is_possible = obstacle.is_none();
        if is_possible && target.features.has(Feature::TmaRows) {
            boxes.find_rows(module, infos, &mut accesses, (launcher, target.tuning));
        }
        let has_copies = target.features.has(Feature::Tma);
        let without_dots =
            "the kernel has no dot: its loads go to registers, which tensor copies do not reach";
        let obstacle = if has_dots { obstacle } else { Some(without_dots) };
        if let Some(reason) = obstacle
            && !(has_copies && has_dots)
        {
            for inst in accesses.iter().filter(|inst| !is_written(function, **inst)) {
                say(function, *inst, || RemarkReason::note("no tensor map", reason));
            }
            // Atomic operations keep their boxes, because one copy reduces a whole box.
            accesses.retain(|inst| is_possible && is_reduction(function, *inst));
        }
        if accesses.is_empty() {
            return boxes;
        }
        let evolution = ScalarEvolution::exact(function);
        let structure = Structure::new(function);
        let (unspecialized, tuning) = (UNSPECIALIZED, target.tuning);
        let mut search = Search { evolution, structure, infos, unspecialized, making: None, tuning };
        for inst in accesses {
            let at_launch = match obstacle.filter(|_| !is_possible) {
                None => {
                    search.access(inst).and_then(|found| fit(found, is_written(function, inst), launcher))
                }
                Some(reason) => Err(reason),
            };
            let at_launch = at_launch.map(|(map, coordinates)| (boxes.of_launch(map), coordinates));
            let found = at_launch.or_else(|reason| {
                let planned = search.device_map(inst);
                planned.map(|(map, coordinates)| (boxes.of_kernel(map), coordinates)).ok_or(reason)
            });
            let (map, coordinates) = match found {
                Ok(found) => found,
                Err(reason) if is_possible => {
                    say(function, inst, || RemarkReason::missed("no tensor map", reason));
                    continue;
                }
                Err(reason) => {
                    if !is_written(function, inst) {
                        say(function, inst, || RemarkReason::note("no tensor map", reason));
                    }
                    continue;
                }
            };
            say(function, inst, || {
                let when =
                    if let MapId::Launch(_) = map { "at launch" } else { "when the kernel makes the map" };
                let reason =
                    format!("addresses and mask are a box of a tensor whose strides are known {when}");
                RemarkReason::done(format!("a box of tensor map {map}"), reason)
            });
            boxes.of_access[inst] = Some(TensorBox { map, coordinates });
        }
        boxes
    }

    fn of_launch(&mut self, map: TensorMapPlan) -> MapId {
        MapId::Launch(self.maps.iter().position(|other| *other == map).unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        }))
    }

    fn of_kernel(&mut self, map: DeviceMap) -> MapId {
        MapId::Device(self.device_maps.iter().position(|other| *other == map).unwrap_or_else(|| {
            self.device_maps.push(map);
            self.device_maps.len() - 1
        }))
    }

    pub fn of(&self, inst: Inst) -> Option<&TensorBox> {
        self.of_access[inst].as_ref()
    }
}

/// Checks that this variant is not compiled without the tensor map of the box.
fn fit<T>(
    (map, coordinates): (TensorMapPlan, T),
    is_written: bool,
    launcher: Launcher<'_>,
) -> Result<(TensorMapPlan, T), &'static str> {
    let access = TensorAccess { base: map.base, is_written };
    if launcher.without.contains(&access) {
        return Err("this variant is for launches whose arguments no tensor map describes");
    }
    Ok((map, coordinates))
}

fn say(function: &Function, inst: Inst, because: impl FnOnce() -> RemarkReason) {
    let data = &function.insts[inst];
    let tile = data.results.first().or(data.operands.get(1));
    let subject = || remarks::subject(function, inst, tile.map(|tile| function.ty(*tile)));
    remarks::about("tensor_maps", function, inst, subject, because);
}

fn is_written(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Store { .. } | Op::AtomicRmw { .. })
}

/// Returns whether a tensor copy can execute an atomic operation. The operation must be relaxed,
/// with a scope up to the GPU and elements that the copy can reduce. The pass that makes the copy
/// checks that the result is unused.
fn is_reduction(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    let element = function.ty(data.operands[0]).element.pointee();
    match data.op {
        Op::AtomicRmw { kind, sem: MemorySemantics::Relaxed, scope: MemoryScope::Gpu | MemoryScope::Cta } => {
            element.is_some_and(|element| is_tensor_reduction(kind, element))
        }
        // tidy: wildcard because no other op combines values with those in memory
        _ => false,
    }
}

struct Axis {
    stride: Form,
    /// The extent of the box.
    extent: u32,
    /// The extent of the tensor, if a mask bounds the index.
    bound: Option<Form>,
    /// The coordinate of the first element of the box.
    coordinate: Form,
    /// True if the mask excludes negative coordinates.
    is_checked_below: bool,
}

struct Search<'a> {
    evolution: ScalarEvolution<'a>,
    structure: Structure,
    infos: &'a Infos,
    /// The assumed divisibility of arguments that are not specialized as multiples of 16.
    unspecialized: u64,
    /// The inputs of the kernel's map; `None` for maps of the launch.
    making: Option<MapInputs>,
    tuning: &'static Tuning,
}

impl Search<'_> {
    /// Returns the tensor map of an access and the coordinates of its box. The error is the reason
    /// why no map exists.
    fn access(&mut self, inst: Inst) -> Result<(TensorMapPlan, SmallVec<[Form; 5]>), &'static str> {
        let function = self.evolution.function;
        let data = &function.insts[inst];
        let is_written = is_written(function, inst);
        self.unspecialized = if is_written || self.making.is_some() { 1 } else { UNSPECIALIZED };
        let ty = function.ty(data.operands[0]);
        let element = ty.element.pointee().ok_or("the operand is not a tile of pointers")?;
        let bytes = element.bytes() as u64;
        if ty.is_scalar() || ty.rank() > MAX_AXES || ty.shape.iter().any(|extent| !extent.is_power_of_two()) {
            return Err("the access has no axis, over five axes, or an extent that is not a power of two");
        }
        let (mask, other) = if is_written {
            (data.operands.get(2), None)
        } else {
            (data.operands.get(1), data.operands.get(2))
        };
        if other.is_some_and(|other| !self.is_zero(*other)) {
            return Err("`other`, the value of masked-off lanes, is not zero");
        }
        let address = self
            .evolution
            .address(data.operands[0])
            .ok_or("the addresses are not a sum of strides times indices")?;
        let mut bounds = match mask {
            Some(mask) => {
                bounds(&mut self.evolution, *mask).ok_or("the mask does more than bound indices")?
            }
            None => Vec::new(),
        };
        for wrap in &address.offset.wraps {
            let loaded = data.results.first().filter(|_| !is_written);
            let bound = loaded.and_then(|loaded| self.wrap(*loaded, wrap));
            bounds.push(bound.ok_or("an index wraps around, and elements past its bound may be stored")?);
        }
        if !self.divisibility(&Form::var(Term::Value(address.base)), 1).is_multiple_of(ALIGNMENT) {
            return Err("the base is not known to be a multiple of 16 bytes");
        }
        let mut offset = address.offset.form.clone();
        let mut axes = Vec::new();
        for (axis, &extent) in ty.shape.iter().enumerate() {
            let found = self.axis(axis, extent, &bounds, &mut offset);
            axes.push(found.ok_or("a stride or a bound of an axis is not known at launch")?);
        }
        let rows = self.rows(&address.offset.form, &axes, bytes)?;
        let is_contiguous = |axis: &Axis| axis.extent > 1 && axis.stride.as_constant() == Some(1);
        let [contiguous] =
            (0..axes.len()).filter(|axis| is_contiguous(&axes[*axis])).collect::<SmallVec<[usize; 5]>>()[..]
        else {
            return Err("not exactly one axis is contiguous in memory");
        };
        if u64::from(axes[contiguous].extent) * bytes < ALIGNMENT {
            return Err("fewer than 16 bytes are contiguous");
        }
        let start = self
            .assign_rest(&offset, &mut axes, contiguous, (bytes, address.offset.is_wide))
            .ok_or("the start of the box is not an index along an axis")?;
        // An axis of one element has the coordinate 0, so any aligned stride is correct.
        for axis in &mut axes {
            if axis.stride.is_zero() {
                axis.stride = Form::constant((ALIGNMENT / bytes.min(ALIGNMENT)).into());
                axis.bound.get_or_insert(Form::constant(1));
            }
        }
        // The kernel checks for negative coordinates at run time.
        if is_written && self.making.is_none() {
            // A copy faults on elements before the start of the tensor, even if the mask excludes
            // them.
            for axis in &mut axes {
                axis.is_checked_below = false;
            }
        }
        if !self.is_legal(&axes, bytes) {
            return Err("strides are not known to be aligned, or a box is too long");
        }
        let mut proof = Proof::new(function);
        for axis in axes.iter().filter(|axis| !axis.is_checked_below) {
            if !self.is_nonnegative(&axis.coordinate, &mut proof) {
                return Err("an index may be negative without a mask");
            }
        }
        let not_known = "its extents or strides are not known at launch";
        let mut plan = TensorMapPlan {
            element,
            base: self.argument(address.base).ok_or("the base is not an argument of the kernel")?,
            offset: self.at_launch(&start).ok_or(not_known)?,
            extents: SmallVec::new(),
            strides: SmallVec::new(),
            nonnegative: proof.arguments(),
            copied: None,
        };
        for axis in &axes {
            let unbounded = || Some(LaunchInteger::constant(UNBOUNDED));
            let extent = axis.bound.as_ref().map_or_else(unbounded, |bound| self.at_launch(bound));
            plan.extents.push(extent.ok_or(not_known)?);
            plan.strides.push(self.at_launch(&axis.stride).ok_or(not_known)?);
        }
        let mut coordinates: SmallVec<[Form; 5]> = axes.into_iter().map(|axis| axis.coordinate).collect();
        if let Some((axis, numbers)) = rows {
            if coordinates.len() != 2 || axis == contiguous {
                return Err("gathered rows must be contiguous rows of a matrix");
            }
            coordinates[axis] = Form::var(numbers);
        }
        Ok((plan, coordinates))
    }

    /// Returns the bound of an index that wraps around. Returns `None` if an element past the bound
    /// may be needed.
    fn wrap(&mut self, loaded: Value, wrap: &Wrap) -> Option<Bound> {
        let axis = wrap.index.terms().find_map(|(product, _)| match product[..] {
            [Term::Axis(axis)] => Some(axis),
            // tidy: wildcard because the index is a single term; all other products are in `rest`
            _ => None,
        })?;
        let (factor, rest) = wrap.index.factor_of(Term::Axis(axis))?;
        let rest = rest.minus(&wrap.bound)?;
        let is_index = factor.as_constant() == Some(1) && !rest.any(|term| matches!(term, Term::Axis(_)));
        let is_bounded =
            is_index && is_needed_only_below(&mut self.evolution, &self.structure, loaded, axis, &rest);
        is_bounded.then_some(Bound::Below(axis, rest))
    }

    /// Returns an axis of the tile, and removes its terms from the offset.
    fn axis(&self, axis: usize, extent: u32, bounds: &[Bound], offset: &mut Form) -> Option<Axis> {
        let (stride, rest) = offset.factor_of(index_along(axis, offset)?)?;
        if stride.any(|term| !self.is_known_at_launch(term)) || extent > 1 && stride.terms().count() != 1 {
            return None;
        }
        // The index along an axis of one element is 0.
        let stride = if extent == 1 { Form::default() } else { stride };
        *offset = rest;
        let (mut below, mut from): (Option<&Form>, Option<&Form>) = (None, None);
        for bound in bounds {
            let (found, rest) = match bound {
                Bound::Below(other, rest) if *other == axis => (&mut below, rest),
                Bound::From(other, rest) if *other == axis => (&mut from, rest),
                Bound::Below(..) | Bound::From(..) => continue,
            };
            if found.is_some_and(|found| found != rest) {
                return None;
            }
            *found = Some(rest);
        }
        let mut found = Axis {
            stride,
            extent,
            bound: None,
            coordinate: Form::default(),
            is_checked_below: from.is_some(),
        };
        if below.is_none() && from.is_none() {
            return Some(found);
        }
        if extent == 1 {
            // An axis of one element has no stride by which to find the coordinate.
            return None;
        }
        found.coordinate = match (from, below) {
            (Some(from), _) => from.clone(),
            (None, Some(below)) => {
                let moving =
                    below.split(|product| product.iter().any(|term| !self.is_known_at_launch(term))).0;
                // A constant step along the contiguous axis is part of the coordinate. In the base,
                // it could break the alignment.
                let is_contiguous = found.stride.as_constant() == Some(1);
                let fixed = if is_contiguous { offset.split(SmallVec::is_empty).0 } else { Form::default() };
                moving.plus(&fixed)?
            }
            (None, None) => Form::default(),
        };
        if let Some(below) = below {
            found.bound = Some(found.coordinate.minus(below)?);
        }
        *offset = offset.minus(&found.stride.times(&found.coordinate)?)?;
        Some(found)
    }

    /// Assigns the remaining offset terms to axes, or to new axes of one element. Returns the
    /// offset of the tensor, which is known at launch. Returns `None` if the offset is not aligned,
    /// or if the tensor has too many axes.
    fn assign_rest(
        &self,
        offset: &Form,
        axes: &mut Vec<Axis>,
        contiguous: usize,
        (bytes, is_wide): (u64, bool),
    ) -> Option<Form> {
        let (moving, start) =
            offset.split(|product| product.iter().any(|term| !self.is_known_at_launch(term)));
        let rank = axes.len();
        for (product, factor) in moving.terms() {
            let (known, run_time): (Monomial<Term>, Monomial<Term>) =
                product.iter().copied().partition(|term| self.is_known_at_launch(term));
            let run_time = Form::term(run_time, 1);
            let step = |axis: &Axis| {
                let (own, size) = axis.stride.terms().next()?;
                let times =
                    factor.checked_div(size).filter(|times| times * size == factor && *own == known)?;
                Some(times)
            };
            let is_free = |axis: usize| {
                let along = &axes[axis];
                let times = step(along).filter(|_| along.bound.is_none() && !along.is_checked_below)?;
                let fits = times == 1 || !is_wide && (axis != contiguous || times <= MAX_CONTIGUOUS_STEP);
                fits.then_some((times, axis))
            };
            // Prefer the axis with the longest stride.
            if let Some((times, axis)) = (0..axes.len()).filter_map(is_free).min() {
                let more = run_time.scaled(times)?;
                axes[axis].coordinate = axes[axis].coordinate.plus(&more)?;
                continue;
            }
            let stride = Form::term(known, factor);
            let is_single = |axis: &Axis| axis.extent == 1 && axis.stride.is_zero();
            if let Some(single) = axes.iter_mut().find(|axis| is_single(axis)) {
                (single.stride, single.coordinate) = (stride, run_time);
            } else {
                axes.push(Axis {
                    stride,
                    extent: 1,
                    bound: None,
                    coordinate: run_time,
                    is_checked_below: false,
                });
            }
        }
        // The new axes of one element become the first axes.
        axes.rotate_left(rank);
        let fits = axes.len() <= MAX_AXES && self.is_aligned(&start, bytes, self.unspecialized);
        fits.then_some(start)
    }

    fn is_legal(&self, axes: &[Axis], bytes: u64) -> bool {
        axes.iter().all(|axis| {
            let is_contiguous = axis.extent > 1 && axis.stride.as_constant() == Some(1);
            let is_aligned = if is_contiguous {
                self.is_aligned(&axis.coordinate, bytes, 1)
            } else {
                self.is_aligned(&axis.stride, bytes, self.unspecialized)
            };
            axis.extent <= MAX_BOX_EXTENT.max(if is_contiguous { u32::MAX } else { 0 })
                && is_aligned
                && axis.bound.as_ref().is_none_or(|bound| !bound.any(|term| !self.is_known_at_launch(term)))
        })
    }

    /// Returns whether a number of elements is a multiple of the alignment. `arguments` divides
    /// each argument of the kernel.
    fn is_aligned(&self, elements: &Form, bytes: u64, arguments: u64) -> bool {
        elements.terms().all(|(product, factor)| {
            let part = Form::term(product.clone(), factor);
            self.divisibility(&part, arguments).saturating_mul(bytes).is_multiple_of(ALIGNMENT)
        })
    }

    /// Returns a power of two that divides a form. `arguments` divides each argument of the kernel.
    fn divisibility(&self, form: &Form, arguments: u64) -> u64 {
        let power = |factor: i128| 1_u64 << factor.trailing_zeros().min(32);
        let of_variable = |term: &Term| match term {
            Term::Value(value) => {
                let known = self.infos[*value].divisibility_everywhere(1).min(1 << 32);
                if self.is_known_at_launch(term) { known.max(arguments) } else { known }
            }
            Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => 1,
        };
        let of_product = |(product, factor): (&Monomial<Term>, i128)| {
            product.iter().map(of_variable).fold(power(factor), u64::saturating_mul).min(1 << 32)
        };
        form.terms().map(of_product).min().unwrap_or(1 << 32)
    }

    fn is_known_at_launch(&self, term: &Term) -> bool {
        match term {
            Term::Value(value) => {
                let dtype = self.evolution.function.ty(*value).dtype();
                let is_known = match &self.making {
                    None => is_kernel_parameter(self.evolution.function, *value),
                    Some(making) => self.block_of(*value).is_some_and(|block| making.is_around(block)),
                };
                is_known && matches!(dtype, Some(Dtype::I32 | Dtype::I64))
            }
            Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => false,
        }
    }

    /// Returns the index of a launch argument, or of an input of a kernel's map.
    fn argument(&mut self, value: Value) -> Option<u32> {
        let function = self.evolution.function;
        match (&mut self.making, function.values[value].definition) {
            (Some(making), _) => Some(making.index(value)),
            (None, Definition::Parameter(block, index)) => (block == function.entry).then_some(index),
            (None, Definition::Result(..)) => None,
        }
    }

    /// Converts a form to a sum over arguments of the launch. Returns `None` if the launch does not
    /// know the form.
    fn at_launch(&mut self, form: &Form) -> Option<LaunchInteger> {
        let mut sum = LaunchInteger::default();
        for (product, factor) in form.terms() {
            let mut arguments = SmallVec::new();
            for term in product {
                let Term::Value(value) = *term else { return None };
                if !self.is_known_at_launch(term) {
                    return None;
                }
                arguments.push(self.argument(value)?);
            }
            sum.0.push(LaunchTerm { factor: i64::try_from(factor).ok()?, arguments });
        }
        Some(sum)
    }

    /// Returns whether every element of a tile is 0.
    fn is_zero(&self, tile: Value) -> bool {
        constant_of(self.evolution.function, tile).is_some_and(|value| value.bits == 0)
    }
}
