//! Implements `tilewright explain k.py::kernel`, which writes a page about a kernel.
//!
//! The page shows all stages side by side, the layouts, and the decisions of the passes. With
//! `--why`, the command prints the decisions as text.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use tilewright::compiler::{CompiledKernel, StageText};
use tilewright::runtime::MachineCode;
use tilewright::{Remark, Target, collect_remarks};

use crate::compile::{self, Specialization};
use crate::machine_code::{assemble, occupancy};
use crate::output::{self, Failure};

/// The options of the page: the kernel's target and the file to write.
#[derive(clap::Args)]
pub struct Page {
    #[command(flatten)]
    specialization: Specialization,
    /// The target to compile the kernel for
    #[arg(long, default_value = "sm_90", value_parser = Target::names())]
    target: String,
    /// Print what the passes have decided and why, instead of writing a page
    #[arg(long)]
    why: bool,
    /// The page to write; else <kernel>.html
    #[arg(long, short)]
    output: Option<PathBuf>,
}

const PAGE: &str = include_str!("explain/page.html");
const STYLE: &str = include_str!("explain/style.css");
const SCRIPT: &str = include_str!("explain/page.js");
/// The script that draws layouts, also for the visualizer.
const LAYOUTS: &str = include_str!("explain/layouts.js");

/// Returns whether an argument of `explain` names a kernel or a file, not a code.
pub fn is_kernel(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy();
    text.contains("::") || text.contains('/') || text.ends_with(".py") || Path::new(argument).is_file()
}

pub fn run(argument: &OsString, page: &Page) -> Result<(), Failure> {
    let target = Target::parse(&page.target).ok_or_else(|| Failure::Usage("unknown target".into()))?;
    let kernel = compile::kernel_of(argument)?;
    let (handle, remarks) = collect_remarks(|| compile::compile(&kernel, &page.specialization, target));
    let handle = handle?;
    let compiled = &handle.compiled;
    let (stages, facts) = machine_code(compiled);
    if page.why {
        return output::print(&why(compiled, &remarks, &facts));
    }
    let path = page.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.html", compiled.name)));
    let text = html(&compiled.name, &compiled.explanation(&remarks, &stages, &facts));
    tilewright_base::write_file(&path, text.as_bytes())
        .map_err(|error| Failure::Io(format!("cannot write {}: {error}", path.display())))?;
    output::print(&format!("{}\n", path.display()))
}

/// Returns the SASS as a stage, and the resources of the kernel on a GPU. Both are empty on the
/// CPU, and the SASS is empty without NVIDIA's tools.
fn machine_code(compiled: &CompiledKernel) -> (Vec<StageText>, Vec<(String, String)>) {
    let MachineCode::Gpu(code) = &*compiled.code else { return (Vec::new(), Vec::new()) };
    let mut facts = vec![
        ("threads of a block".to_owned(), code.threads.to_string()),
        ("shared memory of a block".to_owned(), format!("{} bytes", code.shared_bytes)),
        ("tensor maps".to_owned(), code.tensor_maps().len().to_string()),
    ];
    let source = compiled.source_text().map(|source| source.name).unwrap_or_default();
    match assemble(code, &source) {
        Err(reason) => {
            facts.push(("machine code".into(), reason));
            (Vec::new(), facts)
        }
        Ok(made) => {
            let (blocks, limit) =
                occupancy(code.target.capability, code.threads, made.registers, code.shared_bytes);
            let warps = blocks * code.threads / 32;
            facts.push(("registers of a thread".into(), made.registers.to_string()));
            facts.push(("spilled by a thread".into(), format!("{} bytes", made.spills)));
            let text = format!("{blocks} blocks ({warps} warps) on a multiprocessor, limited by {limit}");
            facts.push(("occupancy".into(), text));
            if made.sass.is_none() {
                let reason = "no disassembler reads the cubin: put nvdisasm beside ptxas or on PATH";
                facts.push(("SASS".into(), reason.into()));
            }
            (made.sass.into_iter().collect(), facts)
        }
    }
}

fn why(compiled: &CompiledKernel, remarks: &[Remark], facts: &[(String, String)]) -> String {
    let mut text = format!("{} for {}\n", compiled.name, compiled.metadata.target);
    for (name, value) in facts {
        let _ = writeln!(text, "  {name}: {value}");
    }
    let said = compiled.remarks_as_text(remarks);
    if said.is_empty() {
        text.push_str("\nNo pass reported a decision.\n");
    } else {
        let _ = write!(text, "\n{said}");
    }
    text
}

/// Returns the text of the page. The page does not refer to other files.
fn html(name: &str, data: &str) -> String {
    // A `<` in a script could begin a tag.
    let data = data.replace('<', "\\u003c");
    let parts =
        [("@title@", escaped(name)), ("@style@", STYLE.into()), ("@script@", format!("{LAYOUTS}\n{SCRIPT}"))];
    let page = parts.iter().fold(PAGE.to_owned(), |page, (mark, text)| page.replace(mark, text));
    page.replace("@data@", &data)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
