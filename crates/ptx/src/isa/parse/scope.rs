//! The names of a function: registers, labels and variables, in flattened scopes.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::isa::module::{Function, Label, LabelId, Register, RegisterId, Variable, VariableId};
use crate::isa::operand::{BranchTableId, PrototypeId};
use crate::isa::print::split_number;
use crate::isa::types::ScalarType;

/// An object that a name in a function refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entity {
    Register(RegisterId),
    Variable(VariableId),
    Label(LabelId),
    BranchTable(BranchTableId),
    Prototype(PrototypeId),
}

#[derive(Default)]
struct Scope<'a> {
    entities: FxHashMap<&'a str, Entity>,
    /// The declared registers. A register is created at its first use, so a large range costs
    /// nothing.
    registers: FxHashMap<&'a str, ScalarType>,
    /// `.reg .b32 %r<5>`: the number and the type of the registers with this prefix.
    ranges: FxHashMap<&'a str, (u32, ScalarType)>,
}

/// The names of a function.
#[derive(Default)]
pub(crate) struct Names<'a> {
    scopes: Vec<Scope<'a>>,
    used: FxHashSet<String>,
    /// The last suffix of each name, which keeps the search for a free one cheap.
    suffixes: FxHashMap<String, u32>,
}

impl<'a> Names<'a> {
    /// Returns an empty set of names. The names in `reserved` are those of the module, and may not
    /// be used.
    pub(crate) fn new(reserved: FxHashSet<String>) -> Self {
        Self { scopes: vec![Scope::default()], used: reserved, suffixes: FxHashMap::default() }
    }

    pub(crate) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Closes the innermost scope. Returns `false` for the function's scope.
    pub(crate) fn close(&mut self) -> bool {
        self.scopes.pop();
        !self.scopes.is_empty()
    }

    pub(crate) fn depth(&self) -> usize {
        self.scopes.len()
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        self.scopes.last_mut().expect("the function's scope is closed last")
    }

    /// Returns the name, with a numeric suffix if it is taken.
    fn unique(&mut self, name: &str) -> String {
        if self.used.insert(name.to_owned()) {
            return name.to_owned();
        }
        let counter = self.suffixes.entry(name.to_owned()).or_default();
        loop {
            *counter += 1;
            let candidate = format!("{name}_{counter}");
            if self.used.insert(candidate.clone()) {
                return candidate;
            }
        }
    }

    fn declare(&mut self, name: &'a str, entity: Entity) -> bool {
        self.scope().entities.insert(name, entity).is_none()
    }

    pub(crate) fn declare_range(&mut self, prefix: &'a str, count: u32, ty: ScalarType) -> bool {
        self.scope().ranges.insert(prefix, (count, ty)).is_none()
    }

    pub(crate) fn declare_register(&mut self, name: &'a str, ty: ScalarType) -> bool {
        let scope = self.scope();
        !scope.entities.contains_key(name) && scope.registers.insert(name, ty).is_none()
    }

    pub(crate) fn declare_label(&mut self, function: &mut Function, name: &'a str) -> bool {
        let unique = self.unique(name).into_boxed_str();
        let id = function.labels.push(Label { name: unique });
        self.declare(name, Entity::Label(id))
    }

    /// Declares a variable; returns `None` if the scope already has its name.
    pub(crate) fn declare_variable(
        &mut self,
        function: &mut Function,
        name: &'a str,
        variable: Variable,
    ) -> Option<VariableId> {
        let unique = self.unique(name);
        let id = function.variables.push(Variable { name: unique, ..variable });
        self.declare(name, Entity::Variable(id)).then_some(id)
    }

    /// Declares a list of branch targets or a prototype under a free name. Returns `false` if the
    /// name is declared in this scope.
    pub(crate) fn declare_other(&mut self, name: &'a str, make: impl FnOnce(Box<str>) -> Entity) -> bool {
        let unique = self.unique(name).into_boxed_str();
        let entity = make(unique);
        self.declare(name, entity)
    }

    /// Returns the object that a name refers to. Creates a declared register at its first use.
    pub(crate) fn find(&mut self, function: &mut Function, name: &'a str) -> Option<Entity> {
        for depth in (0..self.scopes.len()).rev() {
            let scope = &self.scopes[depth];
            if let Some(&entity) = scope.entities.get(name) {
                return Some(entity);
            }
            let ty = scope.registers.get(name).copied().or_else(|| {
                let (prefix, number) = split_number(name)?;
                let &(count, ty) = scope.ranges.get(prefix)?;
                (number < count).then_some(ty)
            });
            if let Some(ty) = ty {
                let unique = self.unique(name).into_boxed_str();
                let id = function.registers.push(Register { name: unique, ty });
                self.scopes[depth].entities.insert(name, Entity::Register(id));
                return Some(Entity::Register(id));
            }
        }
        None
    }
}
