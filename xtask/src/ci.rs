//! `cargo xtask ci`: the gate, the same on a developer's machine as elsewhere.

use anyhow::Result;

use crate::{check_object, docs, links, setup, workspace};

/// Runs every check and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    gate()
}

/// The checks themselves; the toolchain must be set up.
pub(crate) fn gate() -> Result<()> {
    workspace::run("format", workspace::cargo().args(["fmt", "--all", "--check"]))?;
    let messages = workspace::capture("lints", workspace::cargo().args(LINTS))?;
    check_object::run(&check_object::path_in(&messages)?)?;
    docs::check()?;
    links::check()?;
    workspace::run(
        "documentation",
        workspace::cargo()
            .args(["doc", "--workspace", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"),
    )
}

/// Diagnostics go to the terminal, and to us where build scripts write.
const LINTS: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--message-format=json-render-diagnostics", "--", "-D", "warnings"];
