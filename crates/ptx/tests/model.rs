//! Tests the parser's module of a text, and the printer's text of a built module.

use expect_test::expect;
use tilewright_ptx::isa::*;

fn only_function(text: &str) -> Function {
    let module = parse(text).expect("the test's text is well formed");
    module.functions.values().next().expect("it has a function").clone()
}

const SCOPES: &str = "\
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p)
{
    .reg .b32 %r<5>;
    .reg .pred %p<2>;
    mov.u32 %r1, 1;
    {
        .reg .b32 %r<5>;
        .reg .b32 t;
        bra NEXT;
        mov.u32 %r1, 2;
    NEXT:
        mov.u32 t, %r1;
    }
    bra NEXT;
NEXT:
    mov.u32 %r3, %r1;
    ret;
}
";

#[test]
fn nested_scopes_become_one_with_distinct_names() {
    let function = only_function(SCOPES);
    let names: Vec<&str> = function.registers.values().map(|register| &*register.name).collect();
    assert_eq!(names, ["%r1", "%r1_1", "t", "%r3"]);
    let labels: Vec<&str> = function.labels.values().map(|label| &*label.name).collect();
    assert_eq!(labels, ["NEXT", "NEXT_1"]);
    let lines: Vec<u32> = function.body.as_ref().unwrap().iter().map(|statement| statement.line).collect();
    assert_eq!(lines, [8, 12, 13, 14, 15, 17, 18, 19, 20]);
    // The jumps target the labels of their scopes.
    let jumps = function.body.iter().flatten().filter_map(|statement| match &statement.kind {
        StatementKind::Instruction { instruction: Instruction::Bra(bra), .. } => Some(bra.target.0),
        _ => None,
    });
    let targets: Vec<&str> = jumps.map(|label| &*function.labels[label].name).collect();
    assert_eq!(targets, ["NEXT_1", "NEXT"]);
}

#[test]
fn the_name_of_an_inlined_function_may_be_far_into_its_section() {
    let text = ".version 8.0 .target sm_80 .address_size 64 .entry k() {
        .loc 1 4 5, function_name $names+18446744073709551615, inlined_at 1 3 9
        ret; }";
    let printed = print(&parse(text).expect("the text is well formed"));
    assert!(printed.contains("function_name $names+18446744073709551615, inlined_at 1 3 9"), "{printed}");
    assert_eq!(print(&parse(&printed).expect("what is printed parses")), printed);
}

#[test]
fn registers_are_visited_by_role() {
    let function = only_function(
        ".version 8.0 .target sm_90a .address_size 64 .entry k() {
            .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<3>; .reg .f32 %f<5>;
            setp.lt.and.s32 %p0|%p1, %r0, 5, !%p2;
            ld.global.v2.b32 {%r1, _}, [%d0+8];
            atom.global.cas.b32 %r2, [%d0], %r3, %r4;
            wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p0, 1, 1, 0, 0;
        }",
    );
    let visited: Vec<String> = function
        .body
        .iter()
        .flatten()
        .map(|statement| {
            let StatementKind::Instruction { instruction, .. } = &statement.kind else { unreachable!() };
            let mut words = Vec::new();
            instruction.visit_registers(|register, access| {
                let sign = match access {
                    Access::Read => "",
                    Access::Write => "=",
                    Access::ReadWrite => "+=",
                };
                words.push(format!("{}{sign}", function.registers[register].name));
            });
            words.join(" ")
        })
        .collect();
    assert_eq!(
        visited,
        ["%p0= %p1= %r0 %p2", "%r1= %d0", "%r2= %d0 %r3 %r4", "%f0+= %f1+= %f2+= %f3+= %d1 %d2 %p0"]
    );
    // The second replacement restores the instruction.
    let mut body = function.body.clone().unwrap();
    let StatementKind::Instruction { instruction, .. } = &mut body[0].kind else { unreachable!() };
    let before = instruction.clone();
    instruction.map_registers(|register, _| *register = RegisterId::from_u32(register.as_u32() ^ 1));
    assert_ne!(*instruction, before);
    instruction.map_registers(|register, _| *register = RegisterId::from_u32(register.as_u32() ^ 1));
    assert_eq!(*instruction, before);
}

#[test]
fn optional_operands_find_their_places() {
    let function = only_function(
        ".version 8.0 .target sm_80 .address_size 64 .entry k() {
            .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<3>;
            cp.async.cg.shared.global.L2::cache_hint [%r1], [%d1], 16, %d2;
            cp.async.cg.shared.global.L2::cache_hint [%r1], [%d1], 16, 8, %d2;
            bar.red.popc.u32 %r1, 0, %p1;
            bar.red.popc.u32 %r1, 0, 64, %p1;
        }",
    );
    let optional: Vec<(bool, bool)> = function
        .body
        .iter()
        .flatten()
        .map(|statement| match &statement.kind {
            StatementKind::Instruction { instruction: Instruction::CpAsync(copy), .. } => {
                (copy.source_size.is_some(), copy.policy.is_some())
            }
            StatementKind::Instruction { instruction: Instruction::BarrierReduce(barrier), .. } => {
                (barrier.threads.is_some(), barrier.aligned)
            }
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(optional, [(false, true), (true, true), (false, true), (true, true)]);
}

#[test]
fn the_order_of_modifiers_does_not_matter() {
    let canonical = "atom.acq_rel.gpu.global.add.f32";
    for opcode in [canonical, "atom.global.gpu.acq_rel.add.f32", "atom.add.global.f32.acq_rel.gpu"] {
        let function = only_function(&format!(
            ".version 8.0 .target sm_80 .address_size 64 .entry k() {{ .reg .f32 %f<3>; .reg .b64 %d<2>;
             {opcode} %f1, [%d1], %f2; }}"
        ));
        let StatementKind::Instruction { instruction, .. } = &function.body.unwrap()[0].kind else {
            unreachable!()
        };
        assert_eq!(instruction.opcode(), canonical);
    }
}

#[test]
fn sizes_and_initial_elements_of_variables() {
    let module = parse(
        ".version 8.0 .target sm_80 .address_size 64
         .extern .shared .align 16 .b8 dynamic[];
         .global .align 4 .f32 grid[2][3] = {{1.0, 2.0}, {0f40800000}};
         .global .u16 open[] = {1, 2, 3};
         .global .v4 .f32 quad = {1.0, 1.0, 1.0, 1.0};
         .global .u32 value = (1 << 4 | 3) * 2 - ~0;
         .const .u64 where[2] = {generic(value)+4, value};",
    )
    .unwrap();
    let sizes: Vec<(u64, u32)> =
        module.globals.values().map(|variable| (variable.bytes(), variable.alignment())).collect();
    assert_eq!(sizes, [(0, 16), (24, 4), (6, 2), (16, 16), (4, 4), (16, 8)]);
    let f32s = |values: &[f32]| {
        values.iter().map(|value| Initializer::Value(Immediate::F32(value.to_bits()))).collect::<Vec<_>>()
    };
    let initializers: Vec<_> = module.globals.values().map(|variable| &variable.initializer).collect();
    assert_eq!(*initializers[1], f32s(&[1.0, 2.0, 0.0, 4.0, 0.0, 0.0]));
    assert_eq!(*initializers[4], [Initializer::Value(Immediate::Integer(39))]);
    let symbol = Symbol::Global(GlobalId::from_u32(4));
    let address = |offset, generic| Initializer::Address { symbol, offset, generic, mask: None };
    assert_eq!(*initializers[5], [address(4, true), address(0, false)]);
}

/// Returns a kernel that is built by code, as a compiler does. If a number is 0, it adds 1 to the
/// previous number.
fn built() -> Module {
    let mut module = Module::new((8, 0), "sm_80");
    module.files.push(File { number: 1, path: "kernel.py".to_owned(), stamp: None });
    let mut function = Function::new("increment", FunctionKind::Entry, Linkage::Visible);
    function.directives.required_threads = Some(vec![128]);
    let pointer = PointerAttribute { space: Some(StateSpace::Global), alignment: Some(16) };
    let parameter = function.variables.push(Variable {
        pointer: Some(pointer),
        ..Variable::scalar("x", StateSpace::Param, ScalarType::U64)
    });
    function.parameters.push(parameter);
    let mut register = |name: &str, ty| function.registers.push(Register { name: name.into(), ty });
    let address = register("%rd0", ScalarType::B64);
    let value = register("%r0", ScalarType::B32);
    let predicate = register("%p0", ScalarType::Pred);
    let end = function.labels.push(Label { name: "END".into() });
    let load = |space, ty, d: RegisterId, address| Ld {
        semantics: None,
        scope: None,
        space: Some(space),
        cache: None,
        non_coherent: false,
        l1_eviction: None,
        l2_eviction: None,
        cache_hint: false,
        prefetch: None,
        vector: None,
        ty,
        d: d.into(),
        address,
        policy: None,
    };
    let parameter = Address { base: AddressBase::Symbol(Symbol::Variable(parameter)), offset: 0 };
    let statement = |kind| Statement { kind, line: 0 };
    let body = vec![
        statement(StatementKind::Location(Location { file: 1, line: 3, column: 5, inlined: None })),
        statement(StatementKind::Comment("x[0] += 1".to_owned())),
        Instruction::from(load(StateSpace::Param, ScalarType::B64, address, parameter)).into(),
        Instruction::from(load(StateSpace::Global, ScalarType::B32, value, address.into())).into(),
        Instruction::from(Setp {
            comparison: Comparison::Eq,
            combine: None,
            ftz: false,
            ty: ScalarType::S32,
            d: DestinationPair { first: Destination::Register(predicate), second: None },
            a: value.into(),
            b: 0.into(),
            c: None,
        })
        .into(),
        statement(StatementKind::Instruction {
            guard: Some(Predicate { register: predicate, negated: true }),
            instruction: Bra { uniform: false, target: BranchTarget(end) }.into(),
        }),
        Instruction::from(Red {
            semantics: Some(Semantics::Relaxed),
            scope: Some(Scope::Gpu),
            space: Some(StateSpace::Global),
            operation: AtomicOperation::Add,
            no_ftz: false,
            cache_hint: false,
            vector: None,
            ty: ScalarType::U32,
            address: Address { offset: -4, ..address.into() },
            b: 1.into(),
            policy: None,
        })
        .into(),
        statement(StatementKind::Label(end)),
        Instruction::from(BarrierSync { aligned: true, barrier: 0.into(), threads: None }).into(),
        Instruction::from(Ret { uniform: false }).into(),
    ];
    function.body = Some(body);
    module.functions.push(function);
    module
}

#[test]
fn what_is_printed_is_ascii() {
    let mut module = built();
    let path = r"C:\123\größe\3 名.py";
    module.files[0].path = path.to_owned();
    let function = module.functions.values_mut().next().unwrap();
    let comment = StatementKind::Comment("x = 7  # größer".to_owned());
    function.body.as_mut().unwrap().insert(0, Statement { kind: comment, line: 0 });
    let printed = print(&module);
    assert!(printed.is_ascii(), "{printed}");
    assert!(printed.contains(r"// x = 7  # gr\u{f6}\u{df}er"), "{printed}");
    assert_eq!(parse(&printed).unwrap().files[0].path, path);
}

#[test]
fn what_is_built_prints_readably() {
    expect![[r#"
        .version 8.0
        .target sm_80
        .address_size 64

        .visible .entry increment(
            .param .u64 .ptr .global .align 16 x
        )
        .reqntid 128
        {
            .reg .b64 %rd<1>;
            .reg .b32 %r<1>;
            .reg .pred %p<1>;
            .loc 1 3 5
            // x[0] += 1
            ld.param.b64            %rd0, [x];
            ld.global.b32           %r0, [%rd0];
            setp.eq.s32             %p0, %r0, 0;
            @!%p0 bra               END;
            red.relaxed.gpu.global.add.u32 [%rd0+-4], 1;
        END:
            bar.sync                0;
            ret;
        }
        .file 1 "kernel.py"
    "#]]
    .assert_eq(&print(&built()));
    let (id, function) =
        built().functions.iter().next().map(|(id, function)| (id, function.clone())).unwrap();
    let texts: Vec<String> =
        function.body.iter().flatten().map(|statement| built().instruction_text(id, statement)).collect();
    assert_eq!(texts[5], "@!%p0 bra END;");
    assert_eq!(texts[7], "END:");
    // Only the comment is lost.
    let mut expected = built();
    let again = parse(&print(&expected)).unwrap();
    let function = expected.functions.values_mut().next().unwrap();
    function.body.as_mut().unwrap().retain(|statement| !matches!(statement.kind, StatementKind::Comment(_)));
    assert_eq!(print(&again), print(&expected));
}
