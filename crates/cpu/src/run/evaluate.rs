//! Runs a program once, on values that the caller holds.
//!
//! Interpret mode keeps the values of a kernel between its ops, and evaluates each op as a program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use smallvec::SmallVec;
use tilewright_base::Diagnostic;
use tilewright_ir::Type;

use crate::program::Program;
use crate::run::argument::Argument;
use crate::run::fault::FaultKind;
use crate::run::interrupt::{Control, Interrupt};
use crate::run::launch::unless_out_of_memory;
use crate::run::machine::Machine;
use crate::run::memory::Region;
use crate::run::ops::materialize::materialize;
use crate::run::padding::PaddedReads;
use crate::run::tile::Tile;
use crate::run::value::{Form, Provenance, Value};
use crate::types::TileType;

/// A scalar or tile that outlives an evaluation. It stays on the thread that created it.
#[derive(Clone, Debug)]
pub struct Held(Value);

impl Held {
    /// Returns the value of a launch argument for a parameter of type `ty`.
    pub fn argument(index: usize, argument: &Argument<'_>, ty: &Type) -> Self {
        Self(Value::of_argument(index, argument, &TileType::new(ty)))
    }

    /// Returns a scalar with these bits. The bits above the width of its type must be zero.
    pub fn scalar(bits: u64) -> Self {
        Self(Value::uniform(bits))
    }

    /// Decodes the bytes of [`Self::to_bytes`]. Returns `None` if the number of bytes does not
    /// match the type.
    pub fn from_bytes(ty: &Type, bytes: &[u8]) -> Option<Self> {
        let ty = TileType::new(ty);
        if bytes.len() != ty.bytes() {
            return None;
        }
        if ty.shape().is_empty() {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            return Some(Self::scalar(u64::from_le_bytes(bits)));
        }
        let mut tile = Tile::new(ty.bytes());
        tile.bytes_mut().copy_from_slice(bytes);
        Some(Self(Value::dense(tile)))
    }

    /// Returns the bits that all elements share. Returns `None` if the elements are not known to be
    /// equal. A scalar always has bits.
    pub fn uniform_bits(&self) -> Option<u64> {
        match self.0.form {
            Form::Uniform(bits) => Some(bits),
            Form::Affine(_) | Form::Box(_) | Form::Dense(_) | Form::InPlace(_) => None,
        }
    }

    /// Returns the bytes of all elements, in row-major order.
    pub fn to_bytes(&self, ty: &Type) -> Vec<u8> {
        materialize(&TileType::new(ty), self.0.clone()).bytes().to_vec()
    }

    /// Returns the index of the argument from which these pointers are derived. Returns `None` if
    /// the value is not a pointer, or if the argument is unknown.
    pub fn argument_index(&self) -> Option<usize> {
        self.0.provenance.index()
    }
}

/// The launch to which an evaluation belongs.
pub struct Surroundings<'a> {
    /// The arguments of the kernel. Pointers may access the memory of these arguments.
    pub arguments: &'a [Argument<'a>],
    /// The names of the arguments.
    pub names: &'a [Arc<str>],
    /// The memory of all arguments, and other memory that pointers of unknown provenance may
    /// access.
    pub regions: &'a [Region<'a>],
    /// The number of programs along x, y and z.
    pub grid: [u32; 3],
    /// The coordinates of this program.
    pub id: [u32; 3],
    /// Stops the evaluation early. Each iteration of a loop checks the interrupt.
    pub interrupt: Interrupt<'a>,
    /// Records loads that end in the padding of a region (see [`PaddedReads`]); such loads read 0.
    /// Without a recorder, such loads are errors.
    pub padded: Option<&'a PaddedReads>,
}

/// The reason why an evaluation has no results.
#[derive(Debug)]
pub struct EvaluationError {
    /// The diagnostic for the user. Its spans are in the sources of the program.
    pub diagnostic: Diagnostic,
    /// True if a pointer of unknown provenance points outside of all regions. In that case, nothing
    /// has been written.
    pub is_outside_of_regions: bool,
}

impl Program {
    /// Runs the program once and returns its results.
    ///
    /// Panics if the number of inputs differs from the number of parameters.
    pub fn evaluate<'h>(
        &self,
        inputs: impl ExactSizeIterator<Item = &'h Held>,
        surroundings: &Surroundings<'_>,
    ) -> Result<SmallVec<[Held; 1]>, Box<EvaluationError>> {
        assert!(inputs.len() == self.parameters.len(), "an evaluation has an input for each parameter");
        let Surroundings { arguments, names, regions, grid, id, interrupt, padded } = *surroundings;
        let stop = AtomicBool::new(false);
        let control = Control::new(&stop, interrupt, true).noting(padded);
        let outcome = unless_out_of_memory(|| {
            let mut machine = Machine::idle(self, arguments, regions, grid, control);
            machine.evaluate(id, inputs.map(|held| held.0.clone()))
        });
        match outcome {
            Ok(results) => Ok(results.into_iter().map(Held).collect()),
            Err(fault) => {
                let name = |index: usize| names.get(index).cloned().unwrap_or_default();
                let is_outside_of_regions =
                    matches!(fault.kind, FaultKind::OutOfBounds { provenance: Provenance::UNKNOWN, .. });
                let diagnostic = fault.diagnostic(self, arguments, &name, id);
                Err(Box::new(EvaluationError { diagnostic, is_outside_of_regions }))
            }
        }
    }
}

impl PaddedReads {
    /// Returns the diagnostic of each recorded load, as a launch without a recorder reports it.
    pub fn of_evaluation(&self, program: &Program, surroundings: &Surroundings<'_>) -> Vec<Diagnostic> {
        let Surroundings { arguments, names, grid, .. } = *surroundings;
        self.diagnostics_of(program, arguments, &|index| names.get(index).cloned().unwrap_or_default(), grid)
    }
}
