//! A module: its directives, variables and functions.
//!
//! Instructions refer to registers, labels, variables and functions by index. Nested scopes are
//! flattened; a redeclared name gets a numeric suffix.

use cranelift_entity::{PrimaryMap, entity_impl};

use super::instruction::Instruction;
use super::operand::{
    Access, BranchTable, BranchTableId, Immediate, Predicate, Prototype, PrototypeId, Symbol,
};
use super::types::{ScalarType, StateSpace};

/// Identifies a register of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterId(u32);
entity_impl!(RegisterId, "register");

/// Identifies a label of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u32);
entity_impl!(LabelId, "label");

/// Identifies a variable or a parameter of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableId(u32);
entity_impl!(VariableId, "variable");

/// Identifies a variable of the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalId(u32);
entity_impl!(GlobalId, "global");

/// Identifies a function of the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);
entity_impl!(FunctionId, "function");

/// A PTX module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// The version of the language: major, minor.
    pub version: (u32, u32),
    /// The target, `sm_90a`.
    pub target: String,
    /// The other words of `.target`: `debug`, `texmode_unified`.
    pub target_options: Vec<String>,
    /// Bits of an address: 32 or 64.
    pub address_size: u32,
    /// The files that `.loc` refers to.
    pub files: Vec<File>,
    /// The variables of the module.
    pub globals: PrimaryMap<GlobalId, Variable>,
    /// The functions, declared and defined. A declaration and its definition are one element.
    pub functions: PrimaryMap<FunctionId, Function>,
    /// Other names of functions: `.alias name, function;`.
    pub aliases: Vec<(String, FunctionId)>,
    /// The strings of `.pragma` outside functions.
    pub pragmas: Vec<String>,
    /// Debug information, kept verbatim.
    pub sections: Vec<Section>,
}

/// A row of the file table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// The number that `.loc` names.
    pub number: u32,
    /// The path.
    pub path: String,
    /// The time stamp and the size, if given.
    pub stamp: Option<(u64, u64)>,
}

/// A section of debug information, kept verbatim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name, `.debug_info`.
    pub name: String,
    /// The text between its braces.
    pub text: String,
}

/// The visibility of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Linkage {
    /// Only this module.
    Internal,
    /// `.visible`: other modules, too.
    Visible,
    /// `.extern`: another module defines the symbol, or the launch sets the size of the array.
    Extern,
    /// `.weak`: the linker takes one of several definitions.
    Weak,
    /// `.common`: the linker takes the largest of several definitions.
    Common,
}

/// A variable: of the module, of a function, or a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its visibility.
    pub linkage: Linkage,
    /// Its state space.
    pub space: StateSpace,
    /// The alignment in bytes, if given; else that of the element.
    pub alignment: Option<u32>,
    /// The element type.
    pub ty: ScalarType,
    /// The number of elements of the vector type: 1, 2 or 4.
    pub vector: u32,
    /// The extents of an array, the outermost first. `None` is `[]`: the initializer or the launch
    /// determines it. Empty for a scalar.
    pub extents: Vec<Option<u64>>,
    /// The initial elements in row-major order. Elements after the last one are zero.
    pub initializer: Vec<Initializer>,
    /// The known attributes of the pointer that a kernel's parameter holds.
    pub pointer: Option<PointerAttribute>,
    /// True for managed memory.
    pub managed: bool,
}

/// Attributes of the pointer that a parameter holds: `.ptr .global .align 16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointerAttribute {
    /// The state space that the pointer points to, `None` for a generic address.
    pub space: Option<StateSpace>,
    /// The alignment of the address in bytes.
    pub alignment: Option<u32>,
}

/// An initial element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Initializer {
    /// A number.
    Value(Immediate),
    /// An address of a variable or function of the module, plus bytes.
    Address {
        /// The symbol; never a function's variable.
        symbol: Symbol,
        /// The number of bytes after the symbol.
        offset: i64,
        /// True if the element is the generic address, `generic(name)`.
        generic: bool,
        /// The mask `0xFF00` of an element `0xFF00(name)`, which selects one byte of the address.
        mask: Option<u64>,
    },
}

impl Variable {
    /// Returns a scalar without attributes.
    pub fn scalar(name: impl Into<String>, space: StateSpace, ty: ScalarType) -> Self {
        Self {
            name: name.into(),
            linkage: Linkage::Internal,
            space,
            alignment: None,
            ty,
            vector: 1,
            extents: Vec::new(),
            initializer: Vec::new(),
            pointer: None,
            managed: false,
        }
    }

    /// Returns an array with an alignment.
    pub fn array(
        name: impl Into<String>,
        space: StateSpace,
        ty: ScalarType,
        count: u64,
        alignment: u32,
    ) -> Self {
        Self { alignment: Some(alignment), extents: vec![Some(count)], ..Self::scalar(name, space, ty) }
    }

    /// Returns the size in bytes, or `u64::MAX` if it overflows. Returns 0 for an array whose
    /// extent the launch determines.
    pub fn bytes(&self) -> u64 {
        let element = u64::from(self.ty.bytes()) * u64::from(self.vector);
        let given = self.initializer.len() as u64 / u64::from(self.vector.max(1));
        let inner =
            self.extents.iter().flatten().fold(1_u64, |product, &extent| product.saturating_mul(extent));
        let count = if self.extents.first() == Some(&None) {
            inner.saturating_mul(given.div_ceil(inner.max(1)))
        } else {
            inner
        };
        element.saturating_mul(count)
    }

    /// Returns the alignment in bytes: the given one, or the size of the element.
    pub fn alignment(&self) -> u32 {
        self.alignment.unwrap_or(self.ty.bytes() * self.vector)
    }
}

/// A kernel or a device function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Kernel or device function.
    pub kind: FunctionKind,
    /// Its visibility.
    pub linkage: Linkage,
    /// The parameters, in order; they are among the variables.
    pub parameters: Vec<VariableId>,
    /// The results of a device function; they are among the variables.
    pub returns: Vec<VariableId>,
    /// Performance directives.
    pub directives: Directives,
    /// The registers.
    pub registers: PrimaryMap<RegisterId, Register>,
    /// The labels.
    pub labels: PrimaryMap<LabelId, Label>,
    /// Parameters, results, and the variables of the body: local, shared, and parameters of calls.
    pub variables: PrimaryMap<VariableId, Variable>,
    /// The lists of labels that indexed branches choose from.
    pub branch_tables: PrimaryMap<BranchTableId, BranchTable>,
    /// The signatures of indirect calls.
    pub prototypes: PrimaryMap<PrototypeId, Prototype>,
    /// The body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
}

/// Kernel or device function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FunctionKind {
    /// `.entry`: launched from the host.
    Entry,
    /// `.func`: called from the device.
    Function,
}

/// Performance directives of a function. Extents have 1 to 3 axes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Directives {
    /// `.maxntid`: the block has at most as many threads as a block of this extent.
    pub max_threads: Option<Vec<u32>>,
    /// `.reqntid`: the block has exactly this extent.
    pub required_threads: Option<Vec<u32>>,
    /// `.minnctapersm`: at least this number of blocks must fit on a multiprocessor.
    pub min_blocks: Option<u32>,
    /// `.maxnctapersm`: at most this number of blocks need fit on a multiprocessor.
    pub max_blocks: Option<u32>,
    /// `.maxnreg`: the largest number of registers of a thread.
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster`: the cluster has exactly this extent.
    pub required_cluster: Option<Vec<u32>>,
    /// `.maxclusterrank`: the largest number of blocks of a cluster.
    pub max_cluster_rank: Option<u32>,
    /// `.explicitcluster`: the launch must set the extent of the cluster.
    pub explicit_cluster: bool,
    /// `.blocksareclusters`: the grid is given in clusters.
    pub blocks_are_clusters: bool,
    /// `.noreturn`: the function does not return.
    pub noreturn: bool,
    /// `.abi_preserve`: the number of general-purpose registers that callers preserve.
    pub abi_preserve: Option<u32>,
    /// `.abi_preserve_control`: the number of control registers that callers preserve.
    pub abi_preserve_control: Option<u32>,
    /// The strings of `.pragma` between the header and the body.
    pub pragmas: Vec<String>,
}

/// A virtual register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// Its name, `%r1`.
    pub name: Box<str>,
    /// The declared type.
    pub ty: ScalarType,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its name.
    pub name: Box<str>,
}

/// An element of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Its kind.
    pub kind: StatementKind,
    /// Its line in the parsed text, from 1; 0 if it was not parsed.
    pub line: u32,
}

/// The kind of a statement.
#[expect(clippy::large_enum_variant, reason = "nearly every statement is an instruction")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatementKind {
    /// The position of a label.
    Label(LabelId),
    /// An instruction, which executes in the threads for which the guard is true.
    Instruction {
        /// The guard, `@%p` or `@!%p`.
        guard: Option<Predicate>,
        /// The instruction.
        instruction: Instruction,
    },
    /// Inline assembly, which is printed verbatim in a separate scope. The parser never creates it,
    /// because it parses such text as instructions.
    Verbatim(Vec<Verbatim>),
    /// The source location of the following statements.
    Location(Location),
    /// `.pragma "…";`
    Pragma(String),
    /// A comment on a separate line; the parser drops comments.
    Comment(String),
}

/// A part of verbatim text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verbatim {
    /// The text itself.
    Text(String),
    /// The name of a register, with its access by the text.
    Register(RegisterId, Access),
}

/// A position in the source: `.loc file line column`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The number of the file.
    pub file: u32,
    /// The line, from 1; 0 where there is none.
    pub line: u32,
    /// The column, from 1; 0 where there is none.
    pub column: u32,
    /// The call at which the function of this location was inlined.
    pub inlined: Option<Box<Inlined>>,
}

/// The call of an inlined function: `function_name label + offset, inlined_at file line column`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inlined {
    /// The label of the function's name in the debug information.
    pub function_name: String,
    /// Bytes after the label.
    pub offset: u64,
    /// The file of the call.
    pub file: u32,
    /// The line of the call.
    pub line: u32,
    /// The column of the call.
    pub column: u32,
}

impl Module {
    /// Returns an empty module with 64-bit addresses.
    pub fn new(version: (u32, u32), target: impl Into<String>) -> Self {
        Self {
            version,
            target: target.into(),
            target_options: Vec::new(),
            address_size: 64,
            files: Vec::new(),
            globals: PrimaryMap::new(),
            functions: PrimaryMap::new(),
            aliases: Vec::new(),
            pragmas: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Returns the function or kernel of this name.
    pub fn function(&self, name: &str) -> Option<FunctionId> {
        self.functions.iter().find(|(_, function)| function.name == name).map(|(id, _)| id)
    }
}

impl Function {
    /// Returns a function without parameters whose body is empty.
    pub fn new(name: impl Into<String>, kind: FunctionKind, linkage: Linkage) -> Self {
        Self {
            name: name.into(),
            kind,
            linkage,
            parameters: Vec::new(),
            returns: Vec::new(),
            directives: Directives::default(),
            registers: PrimaryMap::new(),
            labels: PrimaryMap::new(),
            variables: PrimaryMap::new(),
            branch_tables: PrimaryMap::new(),
            prototypes: PrimaryMap::new(),
            body: Some(Vec::new()),
        }
    }
}

impl From<Instruction> for Statement {
    fn from(instruction: Instruction) -> Self {
        Self { kind: StatementKind::Instruction { guard: None, instruction }, line: 0 }
    }
}
