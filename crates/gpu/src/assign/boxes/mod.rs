//! Loads and stores whose addresses are proved to be a box of a tensor, so that the tensor memory accelerator may copy it:
//! a parameter of the kernel + index * stride along each axis, one stride being 1, under a mask that bounds indices or none.
//! Strides and extents are known at launch, which makes a tensor map of them; where a box begins is known at run time.
//!
//! ```text
//! load x + (m * 128 + rows) * stride + (k * 64 + columns), columns < K - k * 64     a tensor of [max, K] by [stride, 1],
//!                                                                                   a box at [m * 128, k * 64]
//! ```
//! A box has zeros where it exceeds the tensor, as a masked load has; so an index may be negative only where the mask says what
//! happens then ([`sign`]). An index that wraps around, `(m * 128 + rows) % M`, counts as bounded by `M` if what is computed of
//! the elements behind the bound is never stored ([`demand`]).
//!
//! A store to a box, or an atomic operation on one, is stricter: a copy to the tensor may reach over its end, not over its start, whatever the mask says, and
//! strides have to be known to be aligned when the kernel is compiled. Where rows end is known at launch alone: one whose maps of some
//! accesses cannot be made takes code that is compiled `without` these, and has boxes for the others.
//!
//! **Maps that the kernel makes** ([`made`]): where the base is a pointer that the kernel loads, or strides and extents are computed,
//! and the accesses are in a loop that these stand outside of.
//!
//! **Rows by number** ([`rows`]): where the index along one axis of a matrix is a tile of any numbers, as in `desc.gather`.
//!
//! The text says what was found by `tensor_box`, which changes nothing by itself.

mod demand;
mod made;
mod masks;
mod rows;
mod sign;

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tilewright_ir::analysis::polynomial::Monomial;
use tilewright_ir::analysis::scalar_evolution::{Form, ScalarEvolution, Term, Wrap};
use tilewright_ir::{
    Definition, Dtype, Function, Inst, MemoryScope, MemorySemantics, Module, Op, Value, constant_of,
};

use super::coalescing::Infos;
use crate::launcher::Launcher;
use crate::remarks::{self, Because};
use demand::{Structure, is_kernel_parameter, is_needed_only_below};
use made::Making;
pub use made::{MadeMap, MapId};
use masks::{Bound, bounds};
use rows::index_along;
use sign::Proof;
use tilewright_gpu_ir::target::{Feature, GpuTarget};
use tilewright_gpu_ir::{
    LaunchInteger, LaunchTerm, TensorAccess, TensorMapPlan, UNBOUNDED, is_tensor_reduction,
};

/// The most elements of a box along an axis.
const LONGEST: u32 = 256;
/// Addresses, strides and the starts of rows are multiples of this many bytes.
const ALIGNMENT: u64 = 16;
/// What an argument that a launch does not specialize for being a multiple of 16 may be a multiple of. The launch looks: where
/// strides are not aligned, it takes code without the tensor maps of that tensor.
const UNSPECIALIZED: u64 = 8;
/// The most axes of a tensor map.
const MOST_AXES: usize = 5;
/// Steps along the contiguous axis that are longer than this many elements are an axis of their own.
const LONGEST_STEP: i128 = 4096;

/// A load or store of a box.
#[derive(Clone, Debug)]
pub struct TensorBox {
    /// Its tensor map.
    pub map: MapId,
    /// Where it begins along each axis of the map.
    pub coordinates: SmallVec<[Form; 5]>,
}

/// The loads and stores of a kernel that are boxes of tensors.
#[derive(Default, Debug)]
pub struct TensorBoxes {
    /// The tensor maps that the launch makes.
    pub maps: Vec<TensorMapPlan>,
    /// Those that the kernel makes.
    pub made: Vec<MadeMap>,
    of_access: SecondaryMap<Inst, Option<TensorBox>>,
}

impl TensorBoxes {
    /// Looks through a kernel, if the code may ask for tensor maps, which it may not for some accesses. A kernel without matrix products loads as fast by itself.
    pub fn new(module: &Module, infos: &Infos, target: GpuTarget, launcher: Launcher<'_>) -> Self {
        let function = module.kernel();
        let mut boxes = Self::default();
        let (mut accesses, mut has_products) = (Vec::new(), false);
        function.walk(function.entry, &mut |inst| match &function.insts[inst].op {
            Op::Load { volatile: false, .. } | Op::Store { .. } => accesses.push(inst),
            Op::AtomicRmw { .. } if is_reduction(function, inst) => accesses.push(inst),
            Op::Dot { .. } => has_products = true,
            // tidy: wildcard because no other op is asked about
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
            boxes.find_rows(module, infos, &mut accesses, launcher);
        }
        let has_copies = target.features.has(Feature::Tma);
        let without_products =
            "the kernel has no dot: its loads go to registers, which tensor copies do not reach";
        let obstacle = if has_products { obstacle } else { Some(without_products) };
        if let Some(reason) = obstacle
            && !(has_copies && has_products)
        {
            for inst in accesses.iter().filter(|inst| !is_written(function, **inst)) {
                say(function, *inst, || Because::note("no tensor map", reason));
            }
            // A copy adds up a whole box where threads would send an element each.
            accesses.retain(|inst| is_possible && is_reduction(function, *inst));
        }
        if accesses.is_empty() {
            return boxes;
        }
        let evolution = ScalarEvolution::exact(function);
        let structure = Structure::new(function);
        let mut search = Search { evolution, structure, infos, unspecialized: UNSPECIALIZED, making: None };
        for inst in accesses {
            let at_launch = match obstacle.filter(|_| !is_possible) {
                None => {
                    search.access(inst).and_then(|found| fit(found, is_written(function, inst), launcher))
                }
                Some(reason) => Err(reason),
            };
            let at_launch = at_launch.map(|(map, coordinates)| (boxes.of_launch(map), coordinates));
            let found = at_launch.or_else(|reason| {
                let made = search.made(inst);
                made.map(|(map, coordinates)| (boxes.of_kernel(map), coordinates)).ok_or(reason)
            });
            let (map, coordinates) = match found {
                Ok(found) => found,
                Err(reason) if is_possible => {
                    say(function, inst, || Because::missed("no tensor map", reason));
                    continue;
                }
                Err(reason) => {
                    if !is_written(function, inst) {
                        say(function, inst, || Because::note("no tensor map", reason));
                    }
                    continue;
                }
            };
            say(function, inst, || {
                let when =
                    if let MapId::Launch(_) = map { "at launch" } else { "when the kernel makes the map" };
                let reason =
                    format!("addresses and mask are a box of a tensor whose strides are known {when}");
                Because::done(format!("a box of tensor map {map}"), reason)
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

    fn of_kernel(&mut self, map: MadeMap) -> MapId {
        MapId::Made(self.made.iter().position(|other| *other == map).unwrap_or_else(|| {
            self.made.push(map);
            self.made.len() - 1
        }))
    }

    /// The box that an instruction loads or stores.
    pub fn of(&self, inst: Inst) -> Option<&TensorBox> {
        self.of_access[inst].as_ref()
    }
}

/// The box of an access, if the launch can make the map.
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

fn say(function: &Function, inst: Inst, because: impl FnOnce() -> Because) {
    let data = &function.insts[inst];
    let tile = data.results.first().or(data.operands.get(1));
    let subject = || remarks::subject(function, inst, tile.map(|tile| function.ty(*tile)));
    remarks::about("tensor_maps", function, inst, subject, because);
}

fn is_written(function: &Function, inst: Inst) -> bool {
    matches!(function.insts[inst].op, Op::Store { .. } | Op::AtomicRmw { .. })
}

/// Whether an atomic operation is one that a tensor copy may do: in no order with other accesses, of such elements. That nobody
/// asks for its result is found out where the copy is made.
fn is_reduction(function: &Function, inst: Inst) -> bool {
    let data = &function.insts[inst];
    let element = function.ty(data.operands[0]).element.pointee();
    match data.op {
        Op::AtomicRmw { kind, sem: MemorySemantics::Relaxed, scope: MemoryScope::Gpu | MemoryScope::Cta } => {
            element.is_some_and(|element| is_tensor_reduction(kind, element))
        }
        // tidy: wildcard because no other op combines what it writes with what is there
        _ => false,
    }
}

/// What is found along an axis of the tensor.
struct Axis {
    stride: Form,
    /// Elements of the box.
    extent: u32,
    /// The extent of the tensor, if a mask bounds it.
    bound: Option<Form>,
    coordinate: Form,
    /// Whether the mask says that the coordinate is not negative.
    is_checked_below: bool,
}

struct Search<'a> {
    evolution: ScalarEvolution<'a>,
    structure: Structure,
    infos: &'a Infos,
    /// What an argument that is not specialized for being a multiple of 16 is taken to be a multiple of.
    unspecialized: u64,
    /// The map that the kernel is to make, while one is looked for.
    making: Option<Making>,
}

impl Search<'_> {
    /// The tensor map of a load or store and where its box begins, or why there is none.
    fn access(&mut self, inst: Inst) -> Result<(TensorMapPlan, SmallVec<[Form; 5]>), &'static str> {
        let function = self.evolution.function;
        let data = &function.insts[inst];
        let is_written = is_written(function, inst);
        self.unspecialized = if is_written || self.making.is_some() { 1 } else { UNSPECIALIZED };
        let ty = function.ty(data.operands[0]);
        let element = ty.element.pointee().ok_or("the operand is not a tile of pointers")?;
        let bytes = element.bytes() as u64;
        if ty.is_scalar() || ty.rank() > MOST_AXES || ty.shape.iter().any(|extent| !extent.is_power_of_two())
        {
            return Err("a scalar, more than five axes, or an extent that is no power of two");
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
            .place(&offset, &mut axes, contiguous, (bytes, address.offset.is_wide))
            .ok_or("the start of the box is not an index along an axis")?;
        // An axis of one element that nothing moves along.
        for axis in &mut axes {
            if axis.stride.is_zero() {
                axis.stride = Form::constant((ALIGNMENT / bytes.min(ALIGNMENT)).into());
                axis.bound.get_or_insert(Form::constant(1));
            }
        }
        // Maps that the kernel makes are for copies that look at this themselves.
        if is_written && self.making.is_none() {
            // A mask would leave out what is before the start; a copy stops the kernel there.
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
            base: self.argument(address.base).ok_or("the base is no argument of the kernel")?,
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
                return Err("gathered rows need a matrix whose rows are contiguous");
            }
            coordinates[axis] = Form::var(numbers);
        }
        Ok((plan, coordinates))
    }

    /// An index that wraps around, as a bound that holds of all that is needed.
    fn wrap(&mut self, loaded: Value, wrap: &Wrap) -> Option<Bound> {
        let axis = wrap.index.terms().find_map(|(product, _)| match product[..] {
            [Term::Axis(axis)] => Some(axis),
            // tidy: wildcard because all other products are part of the rest
            _ => None,
        })?;
        let (factor, rest) = wrap.index.factor_of(Term::Axis(axis))?;
        let rest = rest.minus(&wrap.bound)?;
        let is_index = factor.as_constant() == Some(1) && !rest.any(|atom| matches!(atom, Term::Axis(_)));
        let is_bounded =
            is_index && is_needed_only_below(&mut self.evolution, &self.structure, loaded, axis, &rest);
        is_bounded.then_some(Bound::Below(axis, rest))
    }

    /// An axis of the tile. What moves the box along it is taken out of the offset.
    fn axis(&self, axis: usize, extent: u32, bounds: &[Bound], offset: &mut Form) -> Option<Axis> {
        let (stride, rest) = offset.factor_of(index_along(axis, offset)?)?;
        if stride.any(|atom| !self.is_known_at_launch(atom)) || extent > 1 && stride.terms().count() != 1 {
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
            // Along an axis of one element there is no stride to find the place by.
            return None;
        }
        found.coordinate = match (from, below) {
            (Some(from), _) => from.clone(),
            (None, Some(below)) => {
                let moving =
                    below.split(|product| product.iter().any(|atom| !self.is_known_at_launch(atom))).0;
                // A distance that is no multiple of the alignment cannot be part of the base.
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

    /// Shares what is left of the offset out among the axes, and axes of its own; gives what is known at launch of it.
    fn place(
        &self,
        offset: &Form,
        axes: &mut Vec<Axis>,
        contiguous: usize,
        (bytes, is_wide): (u64, bool),
    ) -> Option<Form> {
        let (moving, start) =
            offset.split(|product| product.iter().any(|atom| !self.is_known_at_launch(atom)));
        let rank = axes.len();
        for (product, factor) in moving.terms() {
            let (known, run_time): (Monomial<Term>, Monomial<Term>) =
                product.iter().copied().partition(|atom| self.is_known_at_launch(atom));
            let run_time = Form::term(run_time, 1);
            let step = |axis: &Axis| {
                let (own, size) = axis.stride.terms().next()?;
                let times =
                    factor.checked_div(size).filter(|times| times * size == factor && *own == known)?;
                Some(times)
            };
            let is_free = |place: usize| {
                let along = &axes[place];
                let times = step(along).filter(|_| along.bound.is_none() && !along.is_checked_below)?;
                let fits = times == 1 || !is_wide && (place != contiguous || times <= LONGEST_STEP);
                fits.then_some((times, place))
            };
            // The longest stride comes first.
            if let Some((times, place)) = (0..axes.len()).filter_map(is_free).min() {
                let more = run_time.scaled(times)?;
                axes[place].coordinate = axes[place].coordinate.plus(&more)?;
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
        // Axes of single elements come first.
        axes.rotate_left(rank);
        let fits = axes.len() <= MOST_AXES && self.is_aligned(&start, bytes, self.unspecialized);
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
            axis.extent <= LONGEST.max(if is_contiguous { u32::MAX } else { 0 })
                && is_aligned
                && axis.bound.as_ref().is_none_or(|bound| !bound.any(|atom| !self.is_known_at_launch(atom)))
        })
    }

    /// Whether a number of elements is a multiple of the alignment, if each argument of the kernel is one of this number.
    fn is_aligned(&self, elements: &Form, bytes: u64, arguments: u64) -> bool {
        elements.terms().all(|(product, factor)| {
            let part = Form::term(product.clone(), factor);
            self.divisibility(&part, arguments).saturating_mul(bytes).is_multiple_of(ALIGNMENT)
        })
    }

    /// A power of two that divides a number of one term, if each argument of the kernel is a multiple of another one.
    fn divisibility(&self, term: &Form, arguments: u64) -> u64 {
        let power = |number: i128| 1_u64 << number.trailing_zeros().min(32);
        let of_atom = |atom: &Term| match atom {
            Term::Value(value) => {
                let known = self.infos[*value].divisibility_everywhere(1).min(1 << 32);
                if self.is_known_at_launch(atom) { known.max(arguments) } else { known }
            }
            Term::Axis(_) | Term::Element(..) | Term::Iteration(_) => 1,
        };
        let of_term = |(product, factor): (&Monomial<Term>, i128)| {
            product.iter().map(of_atom).fold(power(factor), u64::saturating_mul).min(1 << 32)
        };
        term.terms().map(of_term).min().unwrap_or(1 << 32)
    }

    fn is_known_at_launch(&self, atom: &Term) -> bool {
        match atom {
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

    /// The number of an argument: of the launch, or of the map that the kernel is to make.
    fn argument(&mut self, value: Value) -> Option<u32> {
        let function = self.evolution.function;
        match (&mut self.making, function.values[value].definition) {
            (Some(making), _) => Some(making.number(value)),
            (None, Definition::Parameter(block, number)) => (block == function.entry).then_some(number),
            (None, Definition::Result(..)) => None,
        }
    }

    fn at_launch(&mut self, number: &Form) -> Option<LaunchInteger> {
        let mut sum = LaunchInteger::default();
        for (product, factor) in number.terms() {
            let mut arguments = SmallVec::new();
            for atom in product {
                let Term::Value(value) = *atom else { return None };
                if !self.is_known_at_launch(atom) {
                    return None;
                }
                arguments.push(self.argument(value)?);
            }
            sum.0.push(LaunchTerm { factor: i64::try_from(factor).ok()?, arguments });
        }
        Some(sum)
    }

    /// Whether every element of a tile is 0.
    fn is_zero(&self, tile: Value) -> bool {
        constant_of(self.evolution.function, tile).is_some_and(|value| value.bits == 0)
    }
}
