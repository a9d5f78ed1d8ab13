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

mod bars;
mod figure;
mod layouts;
mod page;
mod plot;
mod receive;

use crate::results::{self, Results};
use crate::{Attempt, Failure, table, whole_file};
use std::path::{Path, PathBuf};

const FOREWORD: &str = "Each scheme gives the same packets to the device in another form. \
<b>single</b>: one packet a call. <b>chain</b>: many packets in one call, each with buffers of its own. \
<b>contiguous</b>: several frames in one block, split below. <b>multidata</b>: one header block, shared \
payload blocks and descriptors. <b>lso</b>: one header and a long payload that the device splits. Points \
and numbers are medians of alternating runs, a MB is 2^20 bytes; every axis begins at zero. Where the \
sender copies, the figures answer \
Figures 1 to 4 of the Multidata Transmit paper (netperf), where it lends its memory, Figures 5 to 8 \
(knetperf), with a device in the place of each machine.";

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Schemes of transmission.
    Transmit,
    /// Coalescing of what is received.
    Receive,
    /// Rings, soft rings and fan-out.
    Layouts,
}

/// What a report consists of.
pub const FILES: [&str; 2] = ["index.html", "results.json"];

/// Writes its [`FILES`] into a directory, which is made where it is missing. Says
/// where the page is.
///
/// # Errors
/// A sentence, where the directory or a file cannot be written.
pub fn write(directory: &Path, results: &Results, subject: Subject) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(directory)
        .attempt(|| format!("cannot make the directory {}", directory.display()))?;
    let [page, data] = FILES.map(|name| directory.join(name));
    whole_file::write_whole(&page, render(results, subject)?.as_bytes())?;
    whole_file::write_whole(&data, results::to_json(results)?.as_bytes())?;
    Ok(page)
}

/// The page as text.
///
/// # Errors
/// A sentence, where a plot cannot be drawn.
pub fn render(results: &Results, subject: Subject) -> Result<String, Failure> {
    match subject {
        Subject::Transmit => {}
        Subject::Receive => {
            return page::render(results, &receive::figures(results), &receive::words(results));
        }
        Subject::Layouts => {
            return page::render(results, &layouts::figures(results), &layouts::words(results));
        }
    }
    let words = page::Words {
        title: "transmit schemes",
        heading: "Transmit schemes, side by side",
        foreword: FOREWORD,
        found: "What batching brought",
        findings: table::findings(results),
        words: ["scheme", "write"],
        columns: figure::COLUMNS.to_vec(),
    };
    page::render(results, &figure::figures(results), &words)
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
        let page = render(&measured(), Subject::Transmit).expect("drawn");
        assert_eq!(page.matches("<svg").count(), 4, "a plot for each panel of the one figure");
        for word in ["single", "multidata", "16K", "64K", "10.00"] {
            assert!(page.contains(word), "{word} is missing");
        }
        for outside in ["<script", "<link", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside}: not readable offline");
        }
    }

    #[test]
    fn where_time_goes_is_drawn_as_bars() {
        let results = crate::times::tests::measured();
        let page = render(&results, Subject::Transmit).expect("drawn");
        assert_eq!(page.matches("<svg").count(), 4 + 1, "the panels and the bars");
        for word in ["Where time goes", "device transmit", "copy-in", "waiting", ">0.400<"] {
            assert!(page.contains(word), "{word} is missing");
        }
    }

    #[test]
    fn the_page_about_receiving_stands_beside_the_figures_of_seed_003() {
        let measured = crate::receive::tests::measured();
        let page = render(&measured, Subject::Receive).expect("drawn");
        assert_eq!(page.matches("<svg").count(), 6 + 1, "one path, and the seed's own figure");
        for word in ["Wadge (2001), A.2", "adaptive", "held 50us", "4.00", "wire receive"] {
            assert!(page.contains(word), "{word} is missing");
        }
        for outside in ["<script", "<link", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside}: not readable offline");
        }
    }

    #[test]
    fn the_page_about_layouts_draws_each_over_connections() {
        let measured = crate::layouts::tests::measured();
        let page = render(&measured, Subject::Layouts).expect("drawn");
        assert_eq!(page.matches("<svg").count(), 6, "a plot for each panel of the one figure");
        for word in ["R2S0F0", "R1S2F1", "application at core", "30.00", "contended %"] {
            assert!(page.contains(word), "{word} is missing");
        }
    }

    #[test]
    fn what_there_is_can_be_shown_wherever_a_job_was_broken_off() {
        use crate::{copy_in, counted, layouts, many, receive};
        let all = [
            (measured(), Subject::Transmit),
            (crate::times::tests::measured(), Subject::Transmit),
            (crate::receive::tests::measured(), Subject::Receive),
            (crate::layouts::tests::measured(), Subject::Layouts),
        ];
        for (whole, subject) in all {
            for count in 1..=whole.runs.len() {
                let part = Results { runs: whole.runs[..count].to_vec(), ..whole.clone() };
                render(&part, subject).expect("drawn");
                let tables = [table::render, table::render_transmit, copy_in::render];
                let tables = tables.into_iter().chain([many::render, receive::render]);
                for text in tables.chain([layouts::render, counted::render]) {
                    assert!(!text(&part).contains("NaN"), "{}", text(&part));
                }
                let found = [table::findings, copy_in::findings, many::findings].into_iter();
                let found = found.chain([receive::findings, layouts::findings]);
                let sentences = found.flat_map(|findings| findings(&part));
                let text: Vec<_> = sentences.chain(table::render_times(&part)).collect();
                assert!(!text.join(" ").contains("NaN"), "{text:?}");
            }
        }
    }

    #[test]
    fn what_comes_from_the_machine_is_escaped() {
        let mut results = measured();
        results.host.cpu = "<b>CPU & co</b>".to_owned();
        let page = render(&results, Subject::Transmit).expect("drawn");
        assert!(page.contains("&lt;b&gt;CPU &amp; co&lt;/b&gt;") && !page.contains("<b>CPU"));
    }

    #[test]
    fn a_part_is_said_to_be_one() {
        let mut results = measured();
        for complete in [false, true] {
            results.host.complete = complete;
            let page = render(&results, Subject::Transmit).expect("drawn");
            assert_eq!(page.contains("Not all was measured"), !complete);
        }
    }

    #[test]
    fn the_files_lie_in_the_directory() {
        let directory = tempfile::tempdir().expect("a place");
        let page =
            write(&directory.path().join("new"), &measured(), Subject::Transmit).expect("written");
        assert!(page.is_file() && page.with_file_name("results.json").is_file());
        assert!(write(&page, &measured(), Subject::Transmit).is_err(), "a file is no directory");
    }
}
