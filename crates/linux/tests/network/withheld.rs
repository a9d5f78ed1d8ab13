//! How a test says that this machine lacks what it needs.

use std::path::Path;

/// Says that a test could not run, for people and for `cargo xtask test`.
pub(crate) fn cannot_run(test: &str, why: &str) {
    eprintln!("CANNOT RUN: {test}: {why}");
    if let Some(directory) = std::env::var_os("MULTIDATA_CANNOT_RUN_DIR") {
        let file = Path::new(&directory).join(test.replace('/', "-"));
        std::fs::write(file, why).expect("the directory for tests that could not run");
    }
}
