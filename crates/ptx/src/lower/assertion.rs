//! Lowers assertions. A failing assertion calls a system function that stops the kernel.

use tilewright_ir::{Failure, Inst, Value};

use super::Lowering;
use super::builder::{Scalar, Width};
use super::integer::Bitwise;
use super::memory::plain_store;
use crate::isa::{
    self, CallOperands, Callee, Function, FunctionId, FunctionKind, Immediate, Initializer, Linkage,
    ScalarType, Source, St, StateSpace, Symbol, Variable,
};

/// The system function of the GPU that stops the kernel. Its parameters: message, file, line,
/// function, and bytes of a character.
const ASSERT_FAIL: &str = "__assertfail";
const ASSERT_FAIL_TYPES: [ScalarType; 5] =
    [ScalarType::B64, ScalarType::B64, ScalarType::B32, ScalarType::B64, ScalarType::B64];

impl Lowering<'_> {
    /// Emits code that stops the kernel if an unmasked condition is false.
    pub(super) fn lower_assert(
        &mut self,
        inst: Inst,
        condition: Value,
        mask: Option<Value>,
        failure: &Failure,
    ) {
        let layout = self.layout_of(condition);
        let conditions = self.get(condition);
        let masks = mask.map(|mask| self.get_in(mask, layout));
        let mut fails = Scalar::FALSE;
        for (register, &condition) in conditions.iter().enumerate() {
            let mut own = condition.plus(Width::Pred, 1);
            if let Some(masks) = &masks {
                own = self.builder.and(own, masks[register]);
            }
            fails = self.builder.bitwise(Bitwise::Or, Width::Pred, fails, own);
        }
        if fails == Scalar::FALSE {
            return;
        }
        let passes = self.builder.label("passes");
        if fails != Scalar::TRUE {
            let guard = self.builder.predicate(fails.plus(Width::Pred, 1));
            self.builder.emit_if(Some(guard), isa::Bra { uniform: false, target: isa::BranchTarget(passes) });
        }
        self.fail(inst, failure);
        self.builder.place(passes);
    }

    /// Emits a call of the function that stops the kernel.
    fn fail(&mut self, inst: Inst, failure: &Failure) {
        let message = failure.message();
        let chain = self.kernel.call_chain(inst);
        let place = self.program.sources.users_place(&chain);
        let (file, line) = place.map(|place| chain[place]).map_or((String::new(), 0), |span| {
            let file = self.program.sources.file(span.file);
            (file.name.clone(), file.line_column(span.start).0)
        });
        let strings = [&message, &file, &self.kernel.name].map(|text| self.string(text));
        let [message, file, name] = strings;
        let values = [message, file, i64::from(line).into(), name, 1.into()];
        let mut arguments = Vec::new();
        for (number, (value, ty)) in values.into_iter().zip(ASSERT_FAIL_TYPES).enumerate() {
            let name = format!("argument_{}_{number}", self.builder.function.variables.len());
            let variable =
                self.builder.function.variables.push(Variable::scalar(name, StateSpace::Param, ty));
            let symbol = Symbol::Variable(variable);
            let address = isa::Address { base: isa::AddressBase::Symbol(symbol), offset: 0 };
            self.builder
                .emit(St { space: Some(StateSpace::Param), ..plain_store(address, value.into(), ty) });
            arguments.push(Source::Symbol(symbol, 0));
        }
        let callee = Callee::Direct(self.assert_fail());
        self.builder.emit(isa::Call {
            uniform: false,
            call: CallOperands { returns: Vec::new(), callee, arguments },
        });
    }

    /// Declares the system function once.
    fn assert_fail(&mut self) -> FunctionId {
        if let Some(known) = self.module.function(ASSERT_FAIL) {
            return known;
        }
        let mut function = Function::new(ASSERT_FAIL, FunctionKind::Function, Linkage::Extern);
        function.body = None;
        for (number, ty) in ASSERT_FAIL_TYPES.into_iter().enumerate() {
            let variable = Variable::scalar(format!("{ASSERT_FAIL}_{number}"), StateSpace::Param, ty);
            let variable = function.variables.push(variable);
            function.parameters.push(variable);
        }
        self.module.functions.push(function)
    }

    /// Adds a zero-terminated string to the module, and returns its generic address.
    pub(super) fn string(&mut self, text: &str) -> Source {
        let bytes = text.bytes().chain([0]).map(|byte| Initializer::Value(Immediate::Integer(byte.into())));
        let initializer: Vec<Initializer> = bytes.collect();
        let known = self.module.globals.iter().find(|(_, variable)| variable.initializer == initializer);
        let known = known.map(|(id, _)| id);
        let global = known.unwrap_or_else(|| {
            let name = format!("string_{}", self.module.globals.len());
            let mut variable =
                Variable::array(name, StateSpace::Global, ScalarType::B8, initializer.len() as u64, 1);
            variable.initializer = initializer;
            self.module.globals.push(variable)
        });
        let symbol = Source::Symbol(Symbol::Global(global), 0);
        let address = self.builder.pure(Width::B64, |d| super::builder::move_to(Width::B64, d, symbol));
        let a = self.builder.source(Width::B64, address);
        let generic = self.builder.pure(Width::B64, |d| isa::Cvta {
            to: false,
            space: StateSpace::Global,
            ty: ScalarType::U64,
            d,
            a,
        });
        self.builder.source(Width::B64, generic)
    }
}
