//! Tests that `docs/options.md` and the page of TW0115 list the launch options.
//!
//! `TILEWRIGHT_BLESS=1` updates `docs/options.md`.

use tilewright::Code;
use tilewright::frontend::Constant;
use tilewright::runtime::{Consumer, OPTIONS, OptionInfo};
use tilewright_testkit::{check_snapshot, project_root};

fn row(info: &OptionInfo) -> String {
    let follows = match info.consumer {
        Consumer::Launcher => "launcher".into(),
        Consumer::Language => "language".into(),
        Consumer::Codegen => "code generation".into(),
        Consumer::Launch => "launch".into(),
        Consumer::CpuLaunch => "launch on the CPU".into(),
        Consumer::Check => "check".into(),
        Consumer::Refused(_) => "refused".into(),
        Consumer::Warned(instead) => format!("ignored, with a warning: {instead}"),
        Consumer::Silent(why) => format!("ignored: {why}"),
    };
    let default = Constant::from(info.default);
    format!("| `{}` | {} | `{default}` | {follows} | {} |\n", info.name, info.kind, info.about)
}

#[test]
fn every_option_is_documented() {
    let path = project_root().join("docs/options.md");
    let page = std::fs::read_to_string(&path).expect("there is a page of options");
    let (head, rule) = ("| option |", "|---|\n");
    let table = page.find(head).and_then(|table| Some(table + page[table..].find(rule)? + rule.len()));
    let rows = table.expect("the page has a table");
    let expected: String = OPTIONS.iter().map(row).collect();
    check_snapshot(&path, &(page[..rows].to_owned() + &expected));
}

#[test]
fn every_option_with_a_warning_is_on_its_page() {
    let page = Code::OptionWithoutEffect.page();
    let shown = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once('`'));
    let shown: Vec<_> = shown.filter_map(|(name, rest)| Some((name, rest.split_once("| ")?.1))).collect();
    let warned = OPTIONS.iter().filter_map(|info| match info.consumer {
        Consumer::Warned(instead) => Some((info.name, instead)),
        _ => None,
    });
    assert_eq!(shown, warned.collect::<Vec<_>>());
}
