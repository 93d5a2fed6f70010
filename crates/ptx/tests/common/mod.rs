//! Checks the round trip of a PTX text: parse, print, parse, assemble.

use tilewright_ptx::isa::{Module, parse, print};
use tilewright_testkit::Ptxas;

/// Sets the line numbers of all statements to 0. Modules that differ only in lines then compare
/// equal.
pub fn without_lines(mut module: Module) -> Module {
    for function in module.functions.values_mut() {
        for statement in function.body.iter_mut().flatten() {
            statement.line = 0;
        }
    }
    module
}

/// Parses the text, prints the module, and parses the printed text. Printing again yields the same
/// text, which assembles to the SASS of the original. Returns the module of the printed text.
pub fn round_trip(text: &str, ptxas: Option<&Ptxas>) -> Result<Module, String> {
    let module = parse(text).map_err(|error| error.to_string())?;
    let printed = print(&module);
    let again = parse(&printed).map_err(|error| format!("its print: {error}\n{printed}"))?;
    if print(&again) != printed {
        return Err(format!("its print prints differently:\n{printed}"));
    }
    // Two parses of the printed text must give equal modules.
    let third = parse(&printed).map_err(|error| error.to_string())?;
    if without_lines(third) != without_lines(again.clone()) {
        return Err("two readings of its print differ".to_owned());
    }
    if let Some(ptxas) = ptxas {
        let before = match ptxas.assemble_with(text, &module.target, &["-O1"]) {
            // The assembler is older than the text.
            Err(error) if error.contains("Unsupported .version") => return Ok(again),
            before => before.map_err(|error| format!("the assembler refuses the text itself: {error}"))?,
        };
        let after = ptxas.assemble_with(&printed, &module.target, &["-O1"]);
        let after = after.map_err(|error| format!("the assembler refuses the print: {error}\n{printed}"))?;
        if before.code() != after.code() {
            return Err(format!("the print becomes other machine code:\n{printed}"));
        }
    }
    Ok(again)
}
