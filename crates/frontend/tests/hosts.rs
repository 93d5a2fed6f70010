//! Tests lowering with a host that returns other results than [`SourceHost`].

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

mod common;

use std::sync::Arc;

use common::HEADER;
use expect_test::expect;
use tilewright_base::{Code, Color, SourceFile};
use tilewright_frontend::{
    Argument, CallError, FunctionRef, FunctionSource, Host, HostValue, ObjectRef, Options, Request,
    SourceHost, lower,
};
use tilewright_ir::Dtype;

/// A host that reads a module's source, but returns other results for some requests.
struct Altered {
    host: SourceHost,
    /// The number of polls after which the host reports an interrupt; 0 for no interrupt.
    patience: usize,
    source: Option<FunctionSource>,
}

impl Host for Altered {
    fn source(&mut self, function: FunctionRef) -> Result<FunctionSource, String> {
        self.source.clone().map_or_else(|| self.host.source(function), Ok)
    }
    fn name(&mut self, function: FunctionRef, name: &str) -> Option<HostValue> {
        self.host.name(function, name)
    }
    fn names(&mut self, function: FunctionRef) -> Vec<String> {
        self.host.names(function)
    }
    fn attribute(&mut self, object: ObjectRef, name: &str) -> Option<HostValue> {
        self.host.attribute(object, name)
    }
    fn default(&mut self, function: FunctionRef, parameter: &str) -> Option<HostValue> {
        self.host.default(function, parameter)
    }
    fn call(
        &mut self,
        callee: ObjectRef,
        arguments: &[HostValue],
        keywords: &[(String, HostValue)],
    ) -> Result<HostValue, CallError> {
        self.host.call(callee, arguments, keywords)
    }
    fn describe(&mut self, object: ObjectRef) -> String {
        self.host.describe(object)
    }
    fn print(&mut self, text: &str) {
        self.host.print(text);
    }
    fn interrupted(&mut self) -> bool {
        self.patience = self.patience.wrapping_sub(1);
        self.patience == 0
    }
}

#[test]
fn lowering_can_be_interrupted() {
    // Lowering reports these mistakes before the interrupt, which must remove the diagnostics.
    let mistakes = (0..60).fold(String::new(), |text, i| text + &format!("    x = unknown{i}\n"));
    let text = format!(
        "{HEADER}@triton.jit\ndef k(x_ptr):\n{mistakes}    for i in tl.static_range(60000):\n        for j in tl.static_range(60000):\n            pass\n"
    );
    let host = SourceHost::new("k.py", text).expect("it is Python");
    let kernel = host.function("k").expect("it is there");
    let mut host = Altered { host, patience: 3, source: None };
    let arguments = vec![Argument::Pointer { pointee: Dtype::F32, divisibility: 1, is_const: false }];
    let failure = lower(&Request { kernel, arguments, options: Options::default() }, &mut host)
        .expect_err("it is interrupted");
    let codes: Vec<Code> = failure.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, [Code::Interrupted]);
    assert!(failure.diagnostics[0].primary.is_some());
}

/// For a lambda, Python's source is the line that contains it, and the name is `<lambda>`.
#[test]
fn a_lambda_is_no_kernel() {
    let host =
        SourceHost::new("k.py", format!("{HEADER}@triton.jit\ndef k(x_ptr): pass\n")).expect("it is Python");
    let kernel = host.function("k").expect("it is there");
    let file = SourceFile::new("k.py", "k = triton.jit(lambda x_ptr: tl.store(x_ptr, 1))\n");
    let name = "<lambda>".to_owned();
    let source = FunctionSource { name, file: Arc::new(file), offset: 0, noinline: false };
    let mut host = Altered { host, patience: 0, source: Some(source) };
    let request = Request { kernel, arguments: Vec::new(), options: Options::default() };
    let failure = lower(&request, &mut host).expect_err("it is no kernel");
    let text = failure.diagnostics[0].render(&failure.sources, Color::Never);
    expect![[r#"
        error[TW0003]: a lambda cannot be a kernel
         --> k.py:1:16
          |
        1 | k = triton.jit(lambda x_ptr: tl.store(x_ptr, 1))
          |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          |
          = help: write it as a `def` with @triton.jit"#]]
    .assert_eq(&text);
}
