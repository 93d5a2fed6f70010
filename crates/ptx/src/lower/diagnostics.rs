//! Diagnostics about an instruction that cannot be lowered.

use tilewright_base::{Code, Diagnostic};
use tilewright_ir::Inst;

use super::Lowering;

impl Lowering<'_> {
    /// Returns a diagnostic at an instruction for an unavailable feature.
    pub(super) fn unsupported(&self, inst: Inst, what: &str) -> Box<Diagnostic> {
        let message = format!("{what} is not available on {}", self.target().name);
        Box::new(self.located(inst, Diagnostic::new(Code::NotOnThisDevice, message)))
    }

    /// Adds the location of an instruction to a diagnostic.
    pub(super) fn located(&self, inst: Inst, mut diagnostic: Diagnostic) -> Diagnostic {
        let chain = self.kernel.call_chain(inst);
        for (index, span) in chain.into_iter().enumerate() {
            diagnostic = if index == 0 {
                diagnostic.primary(span, "")
            } else {
                diagnostic.secondary(span, "called here")
            };
        }
        diagnostic
    }
}
