//! Lowers `print` to a `vprintf` for each element, by its first thread.

use std::fmt::Write;

use tilewright_base::output::index_width;
use tilewright_ir::{Dtype, Element, Value};
use tilewright_layout::{Input, Layout};

use super::builder::{Scalar, Width};
use super::memory::plain_store;
use super::{LANES, Lowering};
use crate::isa::{
    self, CallOperands, Callee, Comparison, Function, FunctionId, FunctionKind, Linkage, ScalarType, Source,
    St, StateSpace, Symbol, Variable, VariableId,
};

/// The system function that prints. Its parameters are a C format and a pointer to the values.
const VPRINTF: &str = "vprintf";

/// A printed text: a format, and values with their widths.
struct Text {
    format: String,
    values: Vec<(Width, Scalar)>,
}

impl Lowering<'_> {
    /// Prints each element with the program id, its index and `prefix`. Without a value, prints the
    /// program id and `prefix`. Omits elements outside of `extents`, unless these are empty.
    pub(super) fn lower_print(&mut self, value: Option<Value>, prefix: &str, digits: u32, extents: &[i64]) {
        let layout = value.and_then(|value| self.layout_of(value));
        // Only the first thread prints a scalar.
        let [lanes, warps] = layout.map_or([LANES - 1, self.warps.count.next_power_of_two() - 1], |layout| {
            [Input::Lane, Input::Warp].map(|input| layout.free_bits(input))
        });
        let is_first = self.is_first(lanes, warps);
        let skip = self.builder.label("printed");
        if is_first != Scalar::TRUE {
            let guard = self.builder.predicate(is_first.plus(Width::Pred, 1));
            self.builder.emit_if(Some(guard), isa::Bra { uniform: false, target: isa::BranchTarget(skip) });
        }
        self.builder.open();
        let ids: Vec<(Width, Scalar)> =
            [0, 1, 2].map(|axis| (Width::B32, self.program_id_along(axis))).into();
        let program = "pid (%u, %u, %u)";
        let prefix = prefix.replace('%', "%%");
        match value {
            None => self.print_text(&Text { format: format!("{program}{prefix}\n"), values: ids }),
            Some(value) => {
                let (element, scalars) = (self.element(value), self.get(value));
                let conversion = conversion(element, digits);
                let places = layout.map(|layout| self.places(layout));
                let registers = layout.map_or_else(|| [0].into_iter().collect(), Layout::representatives);
                for register in registers {
                    let (mut format, mut values) = (format!("{program} idx ("), ids.clone());
                    let outside = (!extents.is_empty()).then(|| self.builder.label("outside"));
                    for (axis, (extent, places)) in places.iter().flatten().enumerate() {
                        let shown = extents.get(axis).map_or(*extent, |extent| *extent as u32);
                        if let Some(outside) = outside.filter(|_| shown < *extent) {
                            let (index, end) = (places[register as usize], Scalar::constant(shown.into()));
                            let is_inside =
                                self.builder.compare(Width::B32, true, Comparison::Lt, index, end);
                            let guard = self.builder.predicate(is_inside.plus(Width::Pred, 1));
                            let target = isa::BranchTarget(outside);
                            self.builder.emit_if(Some(guard), isa::Bra { uniform: false, target });
                        }
                        let width = index_width(shown);
                        let width = if width == 0 { String::new() } else { width.to_string() };
                        let separator = if axis == 0 { "" } else { ", " };
                        let _ = write!(format, "{separator}%{width}u");
                        values.push((Width::B32, places[register as usize]));
                    }
                    let _ = writeln!(format, "){prefix}{conversion}");
                    values.push((super::width_of(element), scalars[register as usize]));
                    self.print_text(&Text { format, values });
                    if let Some(outside) = outside {
                        self.builder.place(outside);
                    }
                }
            }
        }
        let body = self.builder.close();
        self.builder.append(body);
        self.builder.place(skip);
    }

    /// Returns each axis's extent and its indices in the registers.
    fn places(&mut self, layout: &Layout) -> Vec<(u32, Vec<Scalar>)> {
        let mut places = Vec::new();
        for (axis, &extent) in layout.output().shape().iter().enumerate() {
            let image = |input: Input, bit: u32| layout.coordinates(&[(input, 1 << bit)])[axis];
            let bits = |input: Input| (0..layout.bits_of(input)).map(move |bit| (input, bit));
            let images: Vec<u32> =
                bits(Input::Lane).chain(bits(Input::Warp)).map(|(input, bit)| image(input, bit)).collect();
            let thread_part = self.linear(&images);
            let own = (0..layout.registers()).map(|register| {
                let constant = layout.coordinates(&[(Input::Register, register)])[axis];
                self.displaced(thread_part, &images, constant)
            });
            places.push((extent, own.collect()));
        }
        places
    }

    fn print_text(&mut self, text: &Text) {
        let bytes = |width: Width| if width == Width::B64 { 8 } else { 4 };
        let mut offsets = Vec::new();
        let mut end = 0_u64;
        for (width, _) in &text.values {
            let offset = end.next_multiple_of(bytes(*width));
            offsets.push(offset);
            end = offset + bytes(*width);
        }
        let buffer = self.print_buffer(end.next_multiple_of(8));
        for ((width, scalar), offset) in text.values.iter().zip(offsets) {
            let source = Source::Register(self.builder.register(*width, *scalar));
            let symbol = Symbol::Variable(buffer);
            let address = isa::Address { base: isa::AddressBase::Symbol(symbol), offset: offset as i64 };
            self.builder.emit(St {
                space: Some(StateSpace::Local),
                ..plain_store(address, source.into(), width.ty())
            });
        }
        let format = self.string(&text.format);
        let values = self.local_address(buffer);
        let arguments = [format, values].map(|value| {
            let symbol = self.call_variable(ScalarType::B64);
            let address = isa::Address { base: isa::AddressBase::Symbol(symbol), offset: 0 };
            self.builder.emit(St {
                space: Some(StateSpace::Param),
                ..plain_store(address, value.into(), ScalarType::B64)
            });
            Source::Symbol(symbol, 0)
        });
        let result = self.call_variable(ScalarType::B32);
        let callee = Callee::Direct(self.vprintf());
        self.builder.emit(isa::Call {
            uniform: false,
            call: CallOperands {
                returns: vec![Source::Symbol(result, 0)],
                callee,
                arguments: arguments.into(),
            },
        });
    }

    /// Declares a variable for an argument or a result of a call.
    fn call_variable(&mut self, ty: ScalarType) -> Symbol {
        let name = format!("printed_{}", self.builder.function.variables.len());
        let variable = self.builder.function.variables.push(Variable::scalar(name, StateSpace::Param, ty));
        Symbol::Variable(variable)
    }

    /// Returns the local array for printed values, which all texts share.
    fn print_buffer(&mut self, bytes: u64) -> VariableId {
        const NAME: &str = "print_buffer";
        let variables = &mut self.builder.function.variables;
        let known = variables.iter().find(|(_, variable)| variable.name == NAME).map(|(id, _)| id);
        let id = known.unwrap_or_else(|| {
            variables.push(Variable::array(NAME, StateSpace::Local, ScalarType::B8, bytes, 8))
        });
        let variable = &mut variables[id];
        let longest = variable.extents.first().copied().flatten().unwrap_or(0).max(bytes);
        variable.extents = vec![Some(longest)];
        id
    }

    /// Returns the generic address of a variable in local memory.
    fn local_address(&mut self, variable: VariableId) -> Source {
        let symbol = Source::Symbol(Symbol::Variable(variable), 0);
        let address = self.builder.pure(Width::B64, |d| super::builder::move_to(Width::B64, d, symbol));
        let a = self.builder.source(Width::B64, address);
        let generic = self.builder.pure(Width::B64, |d| isa::Cvta {
            to: false,
            space: StateSpace::Local,
            ty: ScalarType::U64,
            d,
            a,
        });
        self.builder.source(Width::B64, generic)
    }

    /// Declares the system function once.
    fn vprintf(&mut self) -> FunctionId {
        if let Some(known) = self.module.function(VPRINTF) {
            return known;
        }
        let mut function = Function::new(VPRINTF, FunctionKind::Function, Linkage::Extern);
        function.body = None;
        let result = Variable::scalar(format!("{VPRINTF}_result"), StateSpace::Param, ScalarType::B32);
        let result = function.variables.push(result);
        function.returns.push(result);
        for number in 0..2 {
            let name = format!("{VPRINTF}_{number}");
            let variable = Variable::scalar(name, StateSpace::Param, ScalarType::B64);
            let variable = function.variables.push(variable);
            function.parameters.push(variable);
        }
        self.module.functions.push(function)
    }
}

/// Returns the C format of an element, which has 32 or 64 bits.
fn conversion(element: Element, digits: u32) -> String {
    let is_long = element.bytes() == 8;
    let length = if is_long { "ll" } else { "" };
    match element {
        Element::Value(_) if digits > 0 => format!("0x%0{digits}{length}x"),
        Element::Value(Dtype::F64) => "%f".into(),
        Element::Value(dtype) => format!("%{length}{}", if dtype.is_signed() { "i" } else { "u" }),
        Element::Pointer(_) => unreachable!("the verifier checks that numbers are printed"),
    }
}
