//! A report for people: one HTML file with plots, readable offline, beside the results as JSON.
//!
//! ```text
//!  Results -> figures (one for each device, copy and number of connections)
//!               -> panels: throughput, CPU, packets in a batch, system calls for a packet
//!                 -> SVG in the page, and a table of the same numbers below
//! ```
//!
//! What is drawn is what was measured: medians, nothing smoothed, every axis from zero. The figures
//! answer those of seed 000, section 6: Figures 1 to 4 (netperf: the sender copies) and 5 to 8
//! (knetperf: it does not), a figure for each sender there, for each device here.

mod figure;
mod page;
mod plot;

use crate::results::Results;
use crate::{Attempt, Failure, whole_file};
use std::path::{Path, PathBuf};

/// Writes `index.html` and `results.json` into a directory, which is made where it is missing. Says
/// where the page is.
///
/// # Errors
/// A sentence, where the directory or a file cannot be written.
pub fn write(directory: &Path, results: &Results) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(directory)
        .attempt(|| format!("cannot make the directory {}", directory.display()))?;
    let page = directory.join("index.html");
    whole_file::write_whole(&page, render(results)?.as_bytes())?;
    whole_file::write_whole(&directory.join("results.json"), results.to_json()?.as_bytes())?;
    Ok(page)
}

/// The page as text.
///
/// # Errors
/// A sentence, where a plot cannot be drawn.
pub fn render(results: &Results) -> Result<String, Failure> {
    page::render(results, &figure::figures(&results.by_scenario()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Run;
    use crate::results::tests::{results, run};
    use device::TransmitMode::{Multidata, Single};

    fn measured() -> Results {
        let runs = [16_384, 65_536].into_iter().flat_map(|write_len_bytes| {
            [(Single, 5.0), (Multidata, 10.0)].map(|(mode, gbps)| {
                let run = run(mode, gbps);
                let scenario = format!("{} {write_len_bytes}", run.scenario);
                Run { write_len_bytes, scenario, ..run }
            })
        });
        results(runs.collect())
    }

    #[test]
    fn the_page_holds_every_scheme_and_nothing_from_elsewhere() {
        let page = render(&measured()).expect("drawn");
        assert_eq!(page.matches("<svg").count(), 4, "a plot for each panel of the one figure");
        for word in ["single", "multidata", "16K", "64K", "10.00"] {
            assert!(page.contains(word), "{word} is missing");
        }
        for outside in ["<script", "<link", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside}: not readable offline");
        }
    }

    #[test]
    fn what_comes_from_the_machine_is_escaped() {
        let mut results = measured();
        results.host.cpu = "<b>CPU & co</b>".to_owned();
        let page = render(&results).expect("drawn");
        assert!(page.contains("&lt;b&gt;CPU &amp; co&lt;/b&gt;") && !page.contains("<b>CPU"));
    }

    #[test]
    fn the_files_lie_in_the_directory() {
        let directory = tempfile::tempdir().expect("a place");
        let page = write(&directory.path().join("new"), &measured()).expect("written");
        assert!(page.is_file() && page.with_file_name("results.json").is_file());
        assert!(write(&page, &measured()).is_err(), "a file is no directory");
    }
}
