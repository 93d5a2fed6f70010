//! The example of `examples/embed.rs` runs: it compares itself with binary64.

#[path = "../examples/embed.rs"]
#[expect(dead_code, reason = "its `main` is called here")]
mod embed;

#[test]
fn embed_runs() {
    embed::run().unwrap();
}
