//! Writes the stages of a compilation to files or stderr, if the knobs request it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright_base::write_file;
use tilewright_compiler::{CodegenOptions, Stage};

use crate::Knobs;

/// Returns the number of the next compilation, or 0 if nothing is dumped. The names of the files
/// contain it.
pub(crate) fn number(knobs: &Knobs) -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if knobs.dump.is_empty() { 0 } else { NUMBER.fetch_add(1, Ordering::Relaxed) }
}

/// Returns whether stages of compilations are dumped.
pub(crate) fn is_on(knobs: &Knobs) -> bool {
    !knobs.dump.is_empty()
}

/// Returns a hook that writes the requested stages of one compilation. It reports a file that it
/// cannot write on stderr.
pub(crate) fn hook<'a>(
    knobs: &'a Knobs,
    kernel: &'a str,
    number: u32,
    options: CodegenOptions,
) -> impl FnMut(Stage, &dyn Fn() -> String) + 'a {
    move |stage, text| {
        if !knobs.dump.contains(&stage) {
            return;
        }
        match &knobs.dump_directory {
            None => eprintln!("// {kernel}, stage '{}'\n{}", stage.name(), text()),
            Some(directory) => {
                let text = match stage {
                    Stage::Ir | Stage::Opt => format!("{}\n{}", describe(options), text()),
                    Stage::Ast | Stage::Cpu | Stage::Asm | Stage::Gpu | Stage::Ptx | Stage::Cubin => text(),
                };
                write(directory, &format!("{kernel}-{number}.{}", stage.name()), text.as_bytes());
            }
        }
    }
}

/// Formats the options of code generation as a comment of a dumped file. The text of tile IR does
/// not contain them.
fn describe(options: CodegenOptions) -> String {
    let CodegenOptions { num_warps, num_stages, num_ctas, max_registers, contraction, tensor_maps } = options;
    let registers = max_registers.unwrap_or(0);
    format!(
        "// options: num_warps={num_warps} num_stages={num_stages} num_ctas={num_ctas} max_registers={registers} \
         contraction={} tensor_maps={}",
        u32::from(contraction),
        u32::from(tensor_maps)
    )
}

/// Writes a cubin, if the knobs request it. The hook receives no cubin, because loading the code
/// creates it.
pub(crate) fn machine_code(knobs: &Knobs, kernel: &str, number: u32, cubin: &[u8]) {
    if !knobs.dump.contains(&Stage::Cubin) {
        return;
    }
    match &knobs.dump_directory {
        None => eprintln!(
            "// {kernel}, stage 'cubin': {} bytes; set TILEWRIGHT_DUMP_DIR to write them to a file",
            cubin.len()
        ),
        Some(directory) => write(directory, &format!("{kernel}-{number}.cubin"), cubin),
    }
}

fn write(directory: &Path, name: &str, content: &[u8]) {
    let path = directory.join(name);
    if let Err(error) = std::fs::create_dir_all(directory).and_then(|()| write_file(&path, content)) {
        eprintln!("tilewright: cannot write {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_that_are_asked_for_are_written() {
        let directory = std::env::temp_dir().join(format!("tilewright-dump-{}", std::process::id()));
        let knobs =
            Knobs { dump: vec![Stage::Opt], dump_directory: Some(directory.clone()), ..Knobs::default() };
        let mut hook = hook(&knobs, "kernel", number(&knobs), CodegenOptions::default());
        hook(Stage::Ir, &|| unreachable!("not requested"));
        hook(Stage::Opt, &|| "text".into());
        let written: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(written.len(), 1);
        assert_eq!(written[0].extension().and_then(|extension| extension.to_str()), Some("opt"));
        let options = "num_warps=4 num_stages=3 num_ctas=1 max_registers=0 contraction=1 tensor_maps=0";
        assert_eq!(std::fs::read_to_string(&written[0]).unwrap(), format!("// options: {options}\ntext"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
