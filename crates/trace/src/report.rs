//! Writes the JSON of the visualizer's pages: launches, events and elements.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::finding::FindingPage;
use crate::json::{Element, to_text};
use crate::model::{File, Kind, Launch, Op, Parameter, SourceRange, Tensor, ValueInfo};
use crate::read::{Access, Event, Form, LaunchTrace, Program, Trace, is_pointer_or_mask};

/// Statistics of an op over all programs of a launch.
#[derive(Clone, Copy, Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    events: u64,
    lanes: u64,
    masked: u64,
    out_of_bounds: u64,
    nanoseconds: u64,
    /// The number of events with a known duration.
    timed: u64,
}

/// The summary of a launch.
#[derive(Serialize)]
struct Heading<'a> {
    kernel: &'a str,
    grid: [u32; 3],
    nanoseconds: u64,
    recorded: usize,
    failed: bool,
    found: usize,
}

impl<'a> Heading<'a> {
    fn new(traced: &'a LaunchTrace) -> Self {
        Self {
            kernel: &traced.launch.kernel,
            grid: traced.launch.grid,
            nanoseconds: traced.nanoseconds,
            recorded: traced.programs.len(),
            failed: !traced.failure.is_empty(),
            found: traced.findings.len(),
        }
    }
}

/// A launch: its description, its programs, and the statistics of its ops.
#[derive(Serialize)]
struct LaunchPage<'a> {
    #[serde(flatten)]
    heading: Heading<'a>,
    failure: &'a str,
    checks: &'a str,
    findings: Vec<FindingPage<'a>>,
    partial: bool,
    interpreted: bool,
    /// The simulated GPU that ran the launch, if any, and the number of warps of its blocks.
    device: Option<&'a str>,
    warps: u32,
    every: u64,
    files: &'a [File],
    parameters: Vec<ParameterPage<'a>>,
    constants: &'a [(String, String)],
    tensors: Vec<TensorPage<'a>>,
    ops: Vec<OpPage<'a>>,
    /// For each program: its number, its flags (1 with values, 2 truncated, 4 failed or
    /// interrupted), and its nanoseconds.
    programs: Vec<[u64; 3]>,
}

#[derive(Serialize)]
struct ParameterPage<'a> {
    name: &'a str,
    dtype: &'a str,
    value: Element,
}

impl<'a> ParameterPage<'a> {
    fn new(Parameter { name, dtype, bits }: &'a Parameter) -> Self {
        Self { name, dtype, value: Element::new(dtype, *bits) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TensorPage<'a> {
    #[serde(flatten)]
    tensor: &'a Tensor,
    has_elements: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OpPage<'a> {
    name: &'a str,
    kind: Kind,
    /// The index of the innermost loop that contains the op, or -1.
    parent: i64,
    /// For each source range: file, line, column, end line and end column.
    places: Vec<[u32; 5]>,
    values: &'a [ValueInfo],
    #[serde(flatten)]
    count: Count,
    is_access: bool,
}

impl<'a> OpPage<'a> {
    fn new(op: &'a Op, count: Count) -> Self {
        let place =
            |place: &SourceRange| [place.file, place.line, place.column, place.end_line, place.end_column];
        Self {
            name: &op.name,
            kind: op.kind,
            parent: op.parent.map_or(-1, i64::from),
            places: op.places.iter().map(place).collect(),
            values: &op.values,
            count,
            is_access: op.kind.is_access(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgramPage<'a> {
    program: u64,
    has_values: bool,
    is_cut_short: bool,
    has_stopped: bool,
    nanoseconds: u64,
    events: Vec<EventPage<'a>>,
}

/// An event. It is serialized as a list: op, nanoseconds, and a summary of each value.
struct EventPage<'a> {
    event: Event<'a>,
    values: &'a [ValueInfo],
}

impl Serialize for EventPage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        list.serialize_element(&self.event.op)?;
        list.serialize_element(&self.event.nanoseconds)?;
        for (value, form) in self.values.iter().zip(&self.event.values) {
            list.serialize_element(&Summary(value, form))?;
        }
        list.end()
    }
}

/// The summary of a form, as one of these lists: `["uniform", 3]`, `["affine", base, strides…]`,
/// `["box", [low, high]…]`, `["dense"]`, `["pointers"]`, `["absent"]`.
struct Summary<'a>(&'a ValueInfo, &'a Form<'a>);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value, form) = self;
        match form {
            Form::Absent => ["absent"].serialize(serializer),
            Form::Uniform(bits) => ("uniform", Element::new(&value.dtype, *bits)).serialize(serializer),
            Form::Affine(base, strides) => named("affine", std::iter::once(base).chain(strides), serializer),
            Form::Box(ranges) => named("box", ranges, serializer),
            Form::Dense(_) | Form::Bits(_) => ["dense"].serialize(serializer),
            Form::Pointers(..) => ["pointers"].serialize(serializer),
        }
    }
}

fn named<S: Serializer>(
    name: &str,
    items: impl IntoIterator<Item = impl Serialize>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(None)?;
    list.serialize_element(name)?;
    items.into_iter().try_for_each(|item| list.serialize_element(&item))?;
    list.end()
}

#[derive(Serialize)]
struct ValuePage<'a> {
    dtype: &'a str,
    shape: &'a [u32],
    /// The elements, or `None` if they were not recorded.
    elements: Option<Elements<'a>>,
}

/// The elements of a tile or tensor: their type, and the bits of each element.
struct Elements<'a>(&'a str, Vec<u64>);

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|&bits| Element::new(self.0, bits)))
    }
}

/// The elements that an access touches. Each list has one item for each lane.
#[derive(Serialize)]
struct AccessPage {
    /// The index of the tensor that [`Trace::own_tensor`] returns, or -1.
    tensor: i64,
    mask: Vec<u8>,
    tensors: Vec<i64>,
    places: Vec<i64>,
    bytes: Vec<i64>,
}

impl Trace {
    /// Returns the summaries of all launches as JSON.
    pub fn list(&self) -> String {
        to_text(&self.launches.iter().map(Heading::new).collect::<Vec<_>>())
    }

    /// Returns a launch as JSON: its description, its programs, and the statistics of its ops.
    /// Returns `None` if there is no launch with this number.
    pub fn launch(&self, number: usize) -> Option<String> {
        let traced = self.launches.get(number)?;
        let launch = &traced.launch;
        let (counts, partial) = self.counts(traced);
        let tensor = |(index, tensor)| {
            let has_elements = self.snapshot(traced, index as u32, false).is_some();
            TensorPage { tensor, has_elements }
        };
        let flag = |is_set: bool, bit: u64| u64::from(is_set) * bit;
        let program = |program: &Program| {
            let flags = flag(program.has_values(), 1)
                | flag(program.is_cut_short(), 2)
                | flag(program.has_stopped(), 4);
            [program.number, flags, program.nanoseconds]
        };
        Some(to_text(&LaunchPage {
            heading: Heading::new(traced),
            failure: &traced.failure,
            checks: &traced.checks,
            findings: traced.findings.iter().map(|finding| finding.page(launch)).collect(),
            partial,
            interpreted: launch.interpreted,
            device: traced.simulation.as_ref().map(|simulation| simulation.device.as_str()),
            warps: traced.simulation.as_ref().map_or(0, |simulation| simulation.warps),
            every: launch.every,
            files: &launch.files,
            parameters: launch.parameters.iter().map(ParameterPage::new).collect(),
            constants: &launch.constants,
            tensors: launch.tensors.iter().enumerate().map(tensor).collect(),
            ops: launch.ops.iter().zip(counts).map(|(op, count)| OpPage::new(op, count)).collect(),
            programs: traced.programs.iter().map(program).collect(),
        }))
    }

    /// Returns the statistics of a launch's ops, and whether the budget of the query was too small.
    fn counts(&self, traced: &LaunchTrace) -> (Vec<Count>, bool) {
        let launch = &traced.launch;
        let mut counts = vec![Count::default(); launch.ops.len()];
        let (mut budget, mut is_partial) = (self.budget(), false);
        for program in &traced.programs {
            self.each_event(traced, program, &mut |event| {
                let count = &mut counts[event.op as usize];
                count.events += 1;
                if program.has_values() {
                    count.nanoseconds = count.nanoseconds.saturating_add(event.nanoseconds);
                    count.timed += 1;
                }
                if launch.ops[event.op as usize].values.first().is_some_and(is_pointer_or_mask) {
                    is_partial |= !budget.charge(launch, &event, &launch.tensors);
                }
                if !is_partial && let Some(access) = Access::new(launch, &event) {
                    let active = |lane: &usize| access.is_active(*lane);
                    let lanes = (0..access.addresses.len()).filter(active);
                    let outside = |lane: &usize| tensor_containing(launch, access.addresses[*lane]).is_none();
                    count.lanes += access.addresses.len() as u64;
                    count.masked += (access.addresses.len() - lanes.clone().count()) as u64;
                    count.out_of_bounds += lanes.filter(outside).count() as u64;
                }
            });
        }
        (counts, is_partial)
    }

    /// Returns the program with this number, and its launch.
    pub fn program(&self, launch: usize, number: u64) -> Option<(&LaunchTrace, &Program)> {
        let traced = self.launches.get(launch)?;
        let found = traced.programs.binary_search_by_key(&number, |program| program.number).ok()?;
        Some((traced, &traced.programs[found]))
    }

    /// Returns the events of a program as JSON: op, nanoseconds, and a summary of each value's
    /// form.
    pub fn events_of(&self, launch: usize, number: u64) -> Option<String> {
        let (traced, program) = self.program(launch, number)?;
        let mut events = Vec::new();
        self.each_event(traced, program, &mut |event| {
            let values = &traced.launch.ops[event.op as usize].values;
            events.push(EventPage { event, values });
        });
        Some(to_text(&ProgramPage {
            program: program.number,
            has_values: program.has_values(),
            is_cut_short: program.is_cut_short(),
            has_stopped: program.has_stopped(),
            nanoseconds: program.nanoseconds,
            events,
        }))
    }

    /// Returns the elements of a value of an event as JSON, in row-major order. Pointers are byte
    /// offsets from their parameter, or addresses.
    pub fn value(&self, launch: usize, program: u64, event: usize, value: usize) -> Option<String> {
        let (traced, program) = self.program(launch, program)?;
        let events = self.events(traced, program);
        let event: &Event<'_> = events.get(event)?;
        let info = traced.launch.ops[event.op as usize].values.get(value)?;
        let dtype = if info.dtype.starts_with('*') { "uint64" } else { &info.dtype };
        let elements = event.values.get(value)?.expand(info);
        let elements = elements.map(|bits| Elements(dtype, bits));
        Some(to_text(&ValuePage { dtype: &info.dtype, shape: &info.shape, elements }))
    }

    /// Returns the elements that an access touches as JSON. Each lane has its mask, the index of
    /// its tensor, the row-major index of its element, and a byte offset. Both indices are -1 if no
    /// tensor contains the address.
    ///
    /// The offset is relative to the start of the access's own tensor, which is also returned. This
    /// is the tensor from which the pointers derive. If the event records addresses instead, it is
    /// the tensor that the first active lane touches. Without such a tensor, the offset is the
    /// address.
    pub fn touched(&self, launch: usize, program: u64, event: usize) -> Option<String> {
        let (traced, program) = self.program(launch, program)?;
        let launch = &traced.launch;
        let events = self.events(traced, program);
        let event: &Event<'_> = events.get(event)?;
        let access = Access::new(launch, event)?;
        let found: Vec<Option<(usize, u64)>> =
            access.addresses.iter().map(|&address| tensor_containing(launch, address)).collect();
        let own = Self::own_tensor(traced, event);
        let base = own.map_or(0, |own| launch.tensors[own].address);
        let distance = |address: &u64| address.wrapping_sub(base).cast_signed();
        Some(to_text(&AccessPage {
            tensor: own.map_or(-1, |own| own as i64),
            mask: (0..found.len()).map(|lane| u8::from(access.is_active(lane))).collect(),
            tensors: found.iter().map(|found| found.map_or(-1, |found| found.0 as i64)).collect(),
            places: found.iter().map(|found| found.map_or(-1, |found| found.1 as i64)).collect(),
            bytes: access.addresses.iter().map(distance).collect(),
        }))
    }

    /// Returns the tensor of the parameter from which the pointers of an event derive. For
    /// addresses, returns the tensor that the first active lane touches.
    fn own_tensor(traced: &LaunchTrace, event: &Event<'_>) -> Option<usize> {
        let launch = &traced.launch;
        if let Some(Form::Pointers(Some(parameter), _)) = event.values.first() {
            let name = &launch.parameters.get(*parameter as usize)?.name;
            return launch.tensors.iter().position(|tensor| tensor.name == *name);
        }
        let access = Access::new(launch, event)?;
        let first = (0..access.addresses.len()).find(|&lane| access.is_active(lane))?;
        tensor_containing(launch, access.addresses[first]).map(|found| found.0)
    }

    /// Returns the elements of a tensor before or after a launch as JSON.
    pub fn elements(&self, launch: usize, tensor: usize, is_after: bool) -> Option<String> {
        let traced = self.launches.get(launch)?;
        let info = traced.launch.tensors.get(tensor)?;
        let bytes = self.snapshot(traced, tensor as u32, is_after)?;
        let bits = |part: &[u8]| part.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        let parts = bytes.chunks_exact((info.size as usize).max(1));
        Some(to_text(&Elements(&info.dtype, parts.map(bits).collect())))
    }
}

impl Tensor {
    /// Returns the row-major index of the element that begins at an address. Returns `None` if no
    /// element of the tensor begins there.
    pub fn element_index(&self, address: u64) -> Option<u64> {
        if self.shape.contains(&0) || self.size == 0 {
            return None;
        }
        let bytes = address.wrapping_sub(self.address).cast_signed();
        if bytes % i64::from(self.size) != 0 {
            return None;
        }
        let mut offset = bytes / i64::from(self.size);
        let mut axes = Vec::with_capacity(self.shape.len());
        for (axis, (&extent, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            if extent == 1 || stride == 0 {
                continue;
            }
            let last = i64::try_from(extent - 1).unwrap_or(i64::MAX);
            if stride < 0 {
                // With a negative stride, the last element is first in memory. The offset is then
                // relative to it.
                offset = offset.saturating_sub(stride.saturating_mul(last));
            }
            axes.push(StridedAxis { axis, is_descending: stride < 0, stride: stride.saturating_abs(), last });
        }
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.stride));
        let mut index = vec![0; self.shape.len()];
        find_index(&axes, offset, &mut index)
            .then(|| index.iter().zip(&self.shape).fold(0, |flat, (at, extent)| flat * extent + at))
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

struct StridedAxis {
    axis: usize,
    is_descending: bool,
    stride: i64,
    /// The last index of the axis.
    last: i64,
}

/// Finds an element at an offset, in elements. `axes` are sorted by descending stride. Writes the
/// indices along these axes to `index`.
fn find_index(axes: &[StridedAxis], offset: i64, index: &mut [u64]) -> bool {
    let Some((outer, inner)) = axes.split_first() else { return offset == 0 };
    if offset < 0 {
        return false;
    }
    let inner_span =
        inner.iter().fold(0_i64, |span, axis| span.saturating_add(axis.stride.saturating_mul(axis.last)));
    let most = (offset / outer.stride).min(outer.last);
    let rest = offset.saturating_sub(inner_span).max(0);
    let least = rest / outer.stride + i64::from(rest % outer.stride != 0);
    // Several indices along the outer axis are possible only if it overlaps the span of the inner
    // axes. A divisor of all strides rejects most offsets without a search.
    let divisor = || axes.iter().fold(0, |divisor, axis| greatest_common_divisor(divisor, axis.stride));
    if least < most && offset % divisor() != 0 {
        return false;
    }
    (least..=most).rev().any(|at| {
        index[outer.axis] = (if outer.is_descending { outer.last - at } else { at }) as u64;
        find_index(inner, offset - at * outer.stride, index)
    })
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

pub(crate) fn tensor_containing(launch: &Launch, address: u64) -> Option<(usize, u64)> {
    let mut tensors = launch.tensors.iter().enumerate();
    tensors.find_map(|(index, tensor)| Some((index, tensor.element_index(address)?)))
}

#[cfg(test)]
mod tests {
    use super::Tensor;

    #[test]
    fn each_element_has_its_index() {
        for (shape, strides) in [
            (vec![2, 3], vec![3, 1]),
            (vec![2, 3], vec![1, 2]),
            (vec![2, 3], vec![-3, 1]),
            (vec![2, 3], vec![3, -1]),
            (vec![2, 3], vec![-3, -1]),
            (vec![2, 3], vec![5, 3]),
            (vec![3, 4], vec![-4, 3]),
            (vec![2, 2, 5], vec![40, -2, 3]),
            (vec![1, 4], vec![-9, 2]),
        ] {
            let address = 1_000_000;
            let tensor = Tensor { name: "x".into(), dtype: "fp32".into(), size: 4, address, shape, strides };
            let mut element_at = std::collections::BTreeMap::<i64, u64>::new();
            for element in 0..tensor.elements() {
                let (mut rest, mut offset) = (element, 0);
                for (extent, stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
                    offset += (rest % extent) as i64 * stride;
                    rest /= extent;
                }
                assert_eq!(element_at.insert(offset, element), None, "{tensor:?} has distinct elements");
            }
            for offset in -64..64 {
                let at = address.wrapping_add_signed(4 * offset);
                let expected = element_at.get(&offset).copied();
                assert_eq!(tensor.element_index(at), expected, "element {offset} of {tensor:?}");
                assert_eq!(tensor.element_index(at + 1), None, "between elements of {tensor:?}");
            }
        }
    }

    #[test]
    fn elements_may_share_addresses() {
        // Windows of 3 elements of a vector of 10, and a broadcast column.
        for (shape, strides, elements) in [(vec![8, 3], vec![1, 1], 10), (vec![5, 4], vec![1, 0], 5)] {
            let tensor =
                Tensor { name: "x".into(), dtype: "int8".into(), size: 1, address: 100, shape, strides };
            for offset in 0..12 {
                let found = tensor.element_index(100 + offset);
                assert_eq!(found.is_some(), offset < elements, "element {offset} of {tensor:?}");
                let Some(found) = found else { continue };
                let (row, column) = (found / tensor.shape[1], found % tensor.shape[1]);
                let at = row as i64 * tensor.strides[0] + column as i64 * tensor.strides[1];
                assert_eq!(at, offset as i64, "{tensor:?}");
            }
        }
    }
}
