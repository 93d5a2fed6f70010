//! The GPU dialect's ops, types, header and checks.

use tilewright_ir as ir;
use tilewright_ir::Dialect;

use super::{Function, Gpu, GpuOp, Header, InstData, Module, Op, Type, check, verify};

impl Dialect for Gpu {
    type Op = Op;
    type Type = Type;
    type Header = Header;

    fn parse_type(text: &str) -> Option<Type> {
        Type::parse(text)
    }

    fn scalar(ty: ir::Type) -> Type {
        Type::scalar(ty)
    }

    fn tile_type(ty: &Type) -> Option<&ir::Type> {
        ty.as_registers()
    }

    fn elementwise(function: ir::ElementwiseFn) -> Op {
        GpuOp::Elementwise { function, equal_registers: 0 }.into()
    }

    fn print_header(header: &Header) -> String {
        header.print()
    }

    fn parse_header(lines: &str) -> Result<Header, String> {
        Header::parse(lines)
    }

    fn check(module: &Module, function: &Function, inst: &InstData) -> Result<(), String> {
        check::instruction(&module.header, function, inst)
    }

    fn check_function(module: &Module, function: &Function) -> Result<(), String> {
        verify::function(&module.header, function)
    }
}
