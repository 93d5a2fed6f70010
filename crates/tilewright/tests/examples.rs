//! Runs `examples/embed.rs`, which compares its results with a softmax in binary64.

#[path = "../examples/embed.rs"]
#[expect(dead_code, reason = "its `main` is called here")]
mod embed;

#[test]
fn embed_runs() {
    embed::run().unwrap();
}
