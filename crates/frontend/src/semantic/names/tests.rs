//! Tests the rows of the table, and the aliases of paths.

use super::*;

#[test]
fn every_row_is_well_formed_and_found() {
    assert_eq!(SPECS.len(), ROWS.len() + TYPE_METHODS.len());
    for row in ROWS {
        assert!(!row.docs.is_empty(), "{}", row.signature);
    }
    for name in TYPE_METHODS {
        assert!(matches!(language(&format!("dtype.{name}")), Some(LanguageItem::Builtin(_))), "{name}");
    }
}

#[test]
fn paths_have_their_aliases() {
    let name = |path: &str| match language(path) {
        Some(LanguageItem::Builtin(spec)) => Some(spec.name),
        Some(LanguageItem::Library(function)) => Some(function.function),
        _ => None,
    };
    assert_eq!(name("load"), Some("load"));
    assert_eq!(name("core.load"), Some("load"));
    assert_eq!(name("math.exp"), Some("exp"));
    assert_eq!(name("math.tanh"), Some("tanh"));
    assert_eq!(name("extra.libdevice.tanh"), Some("tanh"));
    assert_eq!(name("extra.cuda.libdevice.tanh"), Some("tanh"));
    assert_eq!(name("extra.cpu.libdevice.tanh"), Some("tanh"));
    assert_eq!(name("libdevice.tanh"), Some("tanh"));
    assert!(matches!(language("libdevice"), Some(LanguageItem::Module)));
    assert_eq!(name("printf"), Some("device_print"));
    assert_eq!(name("random.uint32_to_uniform_float"), Some("uint_to_uniform_float"));
    assert_eq!(name("tanh"), None);
    assert_eq!(name("standard.sum"), Some("sum"));
    assert_eq!(name("tensor.to"), Some("to"));
    assert!(matches!(language("extra.hip.libdevice"), Some(LanguageItem::Module)));
    assert!(matches!(language("float32"), Some(LanguageItem::Constant(_))));
    assert!(language("").is_none());
    assert!(language("nonsense.load").is_none());
}
