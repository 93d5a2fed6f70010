//! What a page shows of a trace, as JSON: launches, a program's events, the elements of a value, those of a tensor.

use tilewright_base::Json;

use crate::json::Elements;
use crate::model::{Kind, Launch, Op, Tensor, ValueInfo};
use crate::read::{Access, Event, Form, Program, Trace, Traced, is_place};

/// What the programs of a launch have done by an op.
#[derive(Clone, Default, Debug)]
struct Count {
    events: u64,
    lanes: u64,
    masked: u64,
    out_of_bounds: u64,
    nanoseconds: u64,
    /// In how many events the time is known.
    timed: u64,
}

impl Trace {
    /// Each launch in a few words.
    pub fn list(&self) -> String {
        let mut json = Json::default();
        json.nest('[', |json| {
            for launch in &self.launches {
                json.nest('{', |json| heading(json, launch));
            }
        });
        json.0
    }

    /// A launch: its tables, its programs, and what its ops have done. Nothing if there is none with this number.
    pub fn launch(&self, number: usize) -> Option<String> {
        let traced = self.launches.get(number)?;
        let launch = &traced.launch;
        let (counts, is_partial) = self.counts(traced);
        let mut json = Json::default();
        json.nest('{', |json| {
            heading(json, traced);
            json.key("failure").text(&traced.failure);
            json.key("checks").text(&traced.checks);
            json.key("findings").nest('[', |json| {
                for finding in &traced.findings {
                    finding.describe(json, launch);
                }
            });
            json.key("partial").plain(is_partial);
            json.key("interpreted").plain(launch.interpreted);
            json.key("every").plain(launch.every);
            json.key("files").nest('[', |json| {
                for file in &launch.files {
                    json.nest('{', |json| {
                        json.key("name").text(&file.name);
                        json.key("text").text(&file.text);
                        json.key("firstLine").plain(file.first_line);
                    });
                }
            });
            json.key("parameters").nest('[', |json| {
                for parameter in &launch.parameters {
                    json.nest('{', |json| {
                        json.key("name").text(&parameter.name);
                        json.key("dtype").text(&parameter.dtype);
                        json.key("value").element(&parameter.dtype, parameter.bits);
                    });
                }
            });
            json.key("constants").nest('[', |json| {
                for (name, value) in &launch.constants {
                    json.nest('[', |json| {
                        json.text(name);
                        json.text(value);
                    });
                }
            });
            json.key("tensors").nest('[', |json| {
                for (index, tensor) in launch.tensors.iter().enumerate() {
                    json.nest('{', |json| {
                        describe_tensor(json, tensor);
                        let has_elements = self.snapshot(traced, index as u32, false).is_some();
                        json.key("hasElements").plain(has_elements);
                    });
                }
            });
            json.key("ops").nest('[', |json| {
                for (op, count) in launch.ops.iter().zip(&counts) {
                    json.nest('{', |json| describe_op(json, op, count));
                }
            });
            json.key("programs").nest('[', |json| {
                for program in &traced.programs {
                    let flag = |is_set: bool, bit: u64| u64::from(is_set) * bit;
                    let flags = flag(program.has_values(), 1)
                        | flag(program.is_cut_short(), 2)
                        | flag(program.has_stopped(), 4);
                    json.list([program.number, flags, program.nanoseconds]);
                }
            });
        });
        Some(json.0)
    }

    /// What the ops of a launch have done, and whether lanes were left out because there are too many.
    fn counts(&self, traced: &Traced) -> (Vec<Count>, bool) {
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
                if launch.ops[event.op as usize].values.first().is_some_and(is_place) {
                    is_partial |= !budget.pays(launch, &event, &launch.tensors);
                }
                if !is_partial && let Some(access) = Access::new(launch, &event) {
                    let active = |lane: &usize| access.is_active(*lane);
                    let lanes = (0..access.addresses.len()).filter(active);
                    let outside = |lane: &usize| tensor_at(launch, access.addresses[*lane]).is_none();
                    count.lanes += access.addresses.len() as u64;
                    count.masked += (access.addresses.len() - lanes.clone().count()) as u64;
                    count.out_of_bounds += lanes.filter(outside).count() as u64;
                }
            });
        }
        (counts, is_partial)
    }

    /// The program of a launch with this number.
    pub fn program(&self, launch: usize, number: u64) -> Option<(&Traced, &Program)> {
        let traced = self.launches.get(launch)?;
        let found = traced.programs.binary_search_by_key(&number, |program| program.number).ok()?;
        Some((traced, &traced.programs[found]))
    }

    /// The events of a program: op, nanoseconds, and of each value its form in a few words.
    pub fn events_of(&self, launch: usize, number: u64) -> Option<String> {
        let (traced, program) = self.program(launch, number)?;
        let mut json = Json::default();
        json.nest('{', |json| {
            json.key("program").plain(program.number);
            json.key("hasValues").plain(program.has_values());
            json.key("isCutShort").plain(program.is_cut_short());
            json.key("hasStopped").plain(program.has_stopped());
            json.key("nanoseconds").plain(program.nanoseconds);
            json.key("events").nest('[', |json| {
                self.each_event(traced, program, &mut |event| {
                    json.nest('[', |json| {
                        json.plain(event.op);
                        json.plain(event.nanoseconds);
                        let op = &traced.launch.ops[event.op as usize];
                        for (value, form) in op.values.iter().zip(&event.values) {
                            summary(json, value, form);
                        }
                    });
                });
            });
        });
        Some(json.0)
    }

    /// The elements of a value of an event, row after row; of pointers the tensor and the place in it, of places outside
    /// `null`.
    pub fn value(&self, launch: usize, program: u64, event: usize, value: usize) -> Option<String> {
        let (traced, program) = self.program(launch, program)?;
        let events = self.events(traced, program);
        let event: &Event<'_> = events.get(event)?;
        let info = traced.launch.ops[event.op as usize].values.get(value)?;
        let elements = event.values.get(value)?.expand(info);
        let mut json = Json::default();
        json.nest('{', |json| {
            json.key("dtype").text(&info.dtype);
            json.key("shape").list(&info.shape);
            json.key("elements");
            match elements {
                None => json.plain("null"),
                Some(elements) => {
                    let dtype = if info.dtype.starts_with('*') { "uint64" } else { &info.dtype };
                    json.nest('[', |json| elements.iter().for_each(|&bits| json.element(dtype, bits)));
                }
            }
        });
        Some(json.0)
    }

    /// What an access touches: for each lane whether its mask holds, the tensor, and the place in it, row after row of the
    /// tensor; outside of all tensors -1 and the bytes from the tensor that most lanes are in.
    pub fn touched(&self, launch: usize, program: u64, event: usize) -> Option<String> {
        let (traced, program) = self.program(launch, program)?;
        let launch = &traced.launch;
        let events = self.events(traced, program);
        let event: &Event<'_> = events.get(event)?;
        let access = Access::new(launch, event)?;
        let found: Vec<Option<(usize, u64)>> =
            access.addresses.iter().map(|&address| tensor_at(launch, address)).collect();
        let own = Self::own_tensor(traced, event);
        let mut json = Json::default();
        json.nest('{', |json| {
            json.key("tensor").plain(own.map_or(-1, |own| own as i64));
            json.key("mask").list((0..found.len()).map(|lane| u8::from(access.is_active(lane))));
            json.key("tensors").list(found.iter().map(|found| found.map_or(-1, |found| found.0 as i64)));
            json.key("places").list(found.iter().map(|found| found.map_or(-1, |found| found.1 as i64)));
            let own = own.map_or(0, |own| launch.tensors[own].address);
            let distances = access.addresses.iter().map(|address| address.wrapping_sub(own).cast_signed());
            json.key("bytes").list(distances);
        });
        Some(json.0)
    }

    /// The tensor of the parameter that the pointers of an event come from, or the one that the first active lane is in.
    fn own_tensor(traced: &Traced, event: &Event<'_>) -> Option<usize> {
        let launch = &traced.launch;
        if let Some(Form::Pointers(Some(parameter), _)) = event.values.first() {
            let name = &launch.parameters.get(*parameter as usize)?.name;
            return launch.tensors.iter().position(|tensor| tensor.name == *name);
        }
        let access = Access::new(launch, event)?;
        let first = (0..access.addresses.len()).find(|&lane| access.is_active(lane))?;
        tensor_at(launch, access.addresses[first]).map(|found| found.0)
    }

    /// The elements of a tensor before or after a launch.
    pub fn elements(&self, launch: usize, tensor: usize, is_after: bool) -> Option<String> {
        let traced = self.launches.get(launch)?;
        let info = traced.launch.tensors.get(tensor)?;
        let bytes = self.snapshot(traced, tensor as u32, is_after)?;
        let mut json = Json::default();
        json.nest('[', |json| {
            for part in bytes.chunks_exact((info.size as usize).max(1)) {
                let bits = part.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
                json.element(&info.dtype, bits);
            }
        });
        Some(json.0)
    }
}

fn heading(json: &mut Json, traced: &Traced) {
    json.key("kernel").text(&traced.launch.kernel);
    json.key("grid").list(traced.launch.grid);
    json.key("nanoseconds").plain(traced.nanoseconds);
    json.key("recorded").plain(traced.programs.len());
    json.key("failed").plain(!traced.failure.is_empty());
    json.key("found").plain(traced.findings.len());
}

fn describe_tensor(json: &mut Json, tensor: &Tensor) {
    json.key("name").text(&tensor.name);
    json.key("dtype").text(&tensor.dtype);
    json.key("shape").list(&tensor.shape);
    json.key("strides").list(&tensor.strides);
    json.key("size").plain(tensor.size);
}

fn describe_op(json: &mut Json, op: &Op, count: &Count) {
    json.key("name").text(&op.name);
    json.key("kind").text(op.kind.name());
    json.key("parent").plain(op.parent.map_or(-1, i64::from));
    json.key("places").nest('[', |json| {
        for place in &op.places {
            json.list([place.file, place.line, place.column, place.end_line, place.end_column]);
        }
    });
    json.key("values").nest('[', |json| {
        for value in &op.values {
            json.nest('{', |json| {
                json.key("role").text(value.role.name());
                json.key("dtype").text(&value.dtype);
                json.key("shape").list(&value.shape);
            });
        }
    });
    json.key("events").plain(count.events);
    json.key("lanes").plain(count.lanes);
    json.key("masked").plain(count.masked);
    json.key("outOfBounds").plain(count.out_of_bounds);
    json.key("nanoseconds").plain(count.nanoseconds);
    json.key("timed").plain(count.timed);
    json.key("isAccess").plain(matches!(op.kind, Kind::Load | Kind::Store | Kind::Atomic));
}

/// A form in a few words: `["uniform", 3]`, `["affine", base, strides…]`, `["box", low, high…]`, `["dense"]`, `["absent"]`.
fn summary(json: &mut Json, value: &ValueInfo, form: &Form<'_>) {
    json.nest('[', |json| match form {
        Form::Absent => json.text("absent"),
        Form::Uniform(bits) => {
            json.text("uniform");
            json.element(&value.dtype, *bits);
        }
        Form::Affine(base, strides) => {
            json.text("affine");
            json.plain(base);
            for stride in strides {
                json.plain(stride);
            }
        }
        Form::Box(ranges) => {
            json.text("box");
            for range in ranges {
                json.list([range.0, range.1]);
            }
        }
        Form::Dense(_) | Form::Bits(_) => json.text("dense"),
        Form::Pointers(..) => json.text("pointers"),
    });
}

impl Tensor {
    /// The place of an address among the elements, row after row.
    pub fn place(&self, address: u64) -> Option<u64> {
        if self.shape.contains(&0) {
            return None;
        }
        let mut rest = i64::try_from(address.wrapping_sub(self.address)).ok()?;
        if rest % i64::from(self.size) != 0 {
            return None;
        }
        rest /= i64::from(self.size);
        // The axes by their strides, the longest first. Those of stride 0 repeat elements: the first one counts.
        let mut axes: Vec<usize> = (0..self.shape.len()).filter(|&axis| self.shape[axis] > 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.strides[axis]));
        let mut index = vec![0; self.shape.len()];
        for axis in axes {
            let stride = self.strides[axis];
            if stride > 0 {
                let at = (rest / stride).min(self.shape[axis] as i64 - 1);
                index[axis] = at as u64;
                rest = rest.wrapping_sub(at.wrapping_mul(stride));
            }
        }
        (rest == 0).then(|| index.iter().zip(&self.shape).fold(0, |place, (at, extent)| place * extent + at))
    }

    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The first tensor that has an address, and the place in it.
pub(crate) fn tensor_at(launch: &Launch, address: u64) -> Option<(usize, u64)> {
    let mut tensors = launch.tensors.iter().enumerate();
    tensors.find_map(|(index, tensor)| Some((index, tensor.place(address)?)))
}
