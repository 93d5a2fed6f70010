//! From tile IR to a plan for a GPU: which thread holds what, what goes through shared memory, where threads wait.
//!
//! ```text
//! ir::Module (after opt) ── layouts, relayout ──> ── shared memory ──> ── barriers ──> Plan ── ptx::lower
//! ```
//!
//! [`plan()`] is the list of passes, one file each:
//!
//! | pass | decides |
//! |---|---|
//! | `support` | what is refused, with a diagnostic |
//! | `addresses` | which tiles of pointers are a scalar pointer and offsets of 32 bits |
//! | `products` | the instruction and the layouts of each matrix product |
//! | `recompute` | which tiles every thread computes for itself: they have any layout that is asked for |
//! | `classes` | which other values want one layout |
//! | `choose` | a layout for each class and each access, by the cost of accesses and conversions |
//! | `demand` | which layouts each value is wanted in |
//! | `rebuild` | the function with `relayout`s and with copies of what is computed again |
//! | `exchange` | how elements get from thread to thread |
//! | `allocate` | where in shared memory |
//! | `waits` | where the threads of a block wait for each other, for shared memory and (`memory`) global memory |

mod access;
mod addresses;
mod allocate;
mod choose;
mod classes;
mod demand;
mod dump;
mod events;
mod exchange;
mod layouts;
mod memory;
mod plan;
mod products;
mod rebuild;
mod recompute;
mod rules;
mod support;
mod target;
mod waits;

use cranelift_entity::{PrimaryMap, SecondaryMap};
use tilewright_base::Diagnostic;
use tilewright_ir::{Function, Module, Op, Value};
use tilewright_layout::Layout;
use tilewright_opt::analysis::{Assumptions, analyze, analyze_assuming};

use crate::access::{AccessShape, Infos};
use crate::classes::Classes;
use crate::demand::{Decided, Demands};
use crate::layouts::Layouts;
use crate::products::Products;
use crate::rebuild::Rebuilt;
use crate::recompute::Recomputable;

pub use dump::dump;
pub use plan::{Exchange, MemoryAccess, Plan, Product};
pub use target::{Feature, Features, Target, TargetError};

/// Plans a kernel for a target and a number of warps, a power of two up to 32.
///
/// # Errors
/// What the GPU path cannot do, and what does not fit into shared memory.
pub fn plan(module: &Module, target: Target, num_warps: u32) -> Result<Plan, Box<Diagnostic>> {
    let mut module = support::without_calls(module);
    support::check(module.kernel(), num_warps)?;
    addresses::split(&mut module);
    let mut kernel = module.kernel().clone();
    products::convert_operands(&mut kernel, target);
    let infos = analyze_assuming(&kernel, Assumptions { no_signed_overflow: true });

    let mut layouts = Layouts::default();
    let products = Products::new(&kernel, target, num_warps, &mut layouts);
    let cheap = Recomputable::new(&kernel);
    let classes = Classes::new(&kernel, &cheap, &products, &infos);
    let choice = choose::choose(&kernel, &classes, &mut layouts, num_warps);
    let decided =
        Decided { function: &kernel, cheap: &cheap, classes: &classes, products: &products, num_warps };
    let demands = Demands::new(&decided, choice, &mut layouts);
    let rebuilt = rebuild::rebuild(&decided, &demands, &mut layouts);

    let mut plan = assemble(&module, &decided, &infos, &layouts, rebuilt, target);
    plan.exchanges = exchange::exchanges(plan.module.kernel(), &plan.layouts, &plan.products, target);
    allocate::allocate(&mut plan)?;
    plan.waits_before = waits::waits(&plan);
    Ok(plan)
}

/// The plan without what goes through shared memory.
fn assemble(
    module: &Module,
    decided: &Decided<'_>,
    infos: &Infos,
    layouts: &Layouts,
    rebuilt: Rebuilt,
    target: Target,
) -> Plan {
    let Rebuilt { function, layouts: ids, origins } = rebuilt;
    let mut of_value: SecondaryMap<Value, Option<Layout>> =
        SecondaryMap::with_capacity(function.values.len());
    for value in function.values.keys() {
        of_value[value] = ids[value].map(|id| layouts.get(id).clone());
    }
    // Numbers that programs compute with may wrap around, unlike those that they make addresses of.
    let certain = analyze(decided.function);
    let mut equal_registers = SecondaryMap::new();
    let mut accesses = SecondaryMap::new();
    let mut products = SecondaryMap::new();
    for (inst, data) in &function.insts {
        let Some(origin) = origins[inst] else { continue };
        if let (Op::Elementwise { .. }, [result]) = (&data.op, &data.results[..])
            && let Some(layout) = of_value[*result].as_ref()
        {
            let info = &certain[decided.function.insts[origin].results[0]];
            equal_registers[*result] = access::equal_registers(layout, info);
        }
        let pointer_layout = data.operands.first().and_then(|pointer| of_value[*pointer].as_ref());
        if let (Some(shape), Some(layout)) =
            (AccessShape::of(decided.function, origin, infos), pointer_layout)
        {
            accesses[inst] = Some(shape.access(layout));
        }
        products[inst] = decided.products.of(origin).map(|planned| planned.product);
    }
    Plan {
        module: with_kernel(module, function),
        target,
        num_warps: decided.num_warps,
        layouts: of_value,
        equal_registers,
        accesses,
        products,
        exchanges: SecondaryMap::new(),
        waits_before: SecondaryMap::new(),
        shared_bytes: 0,
        contraction: true,
    }
}

fn with_kernel(module: &Module, kernel: Function) -> Module {
    let mut functions = PrimaryMap::new();
    let entry = functions.push(kernel);
    Module::new(functions, entry, module.sources.clone())
}
