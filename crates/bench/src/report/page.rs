//! The page around the plots.

use super::figure::{COLUMNS, Figure};
use super::plot;
use crate::Failure;
use crate::results::{Host, Results};
use crate::table;
use std::fmt::Write as _;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;\
color:#222}h2{margin-top:2em;border-top:1px solid #ccc;padding-top:1em}table{border-collapse:\
collapse;font-size:13px}th,td{padding:2px 8px;text-align:right;border-bottom:1px solid #e5e5e5}\
th:first-child,td:first-child{text-align:left}.plots{display:flex;flex-wrap:wrap;gap:8px}\
footer{margin-top:3em;color:#666;font-size:13px}";

const FOREWORD: &str = "Each scheme gives the same packets to the device in another form. \
<b>single</b>: one packet a call. <b>chain</b>: many packets in one call, each with buffers of its own. \
<b>contiguous</b>: several frames in one block, split below. <b>multidata</b>: one header block, shared \
payload blocks and descriptors. <b>lso</b>: one header and a long payload that the device splits. Points \
are medians of alternating runs; every axis begins at zero. Where the sender copies, the figures answer \
Figures 1 to 4 of the Multidata Transmit paper (netperf), where it lends its memory, Figures 5 to 8 \
(knetperf), with a device in the place of each machine.";

/// The whole page.
pub(super) fn render(results: &Results, figures: &[Figure]) -> Result<String, Failure> {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Multidata: transmit \
         schemes</title><style>{STYLE}</style></head><body><h1>Transmit schemes, side by side</h1>\
         <p>{}</p><p>{FOREWORD}</p>",
        host(&results.host)
    );
    let findings = table::findings(results);
    if !findings.is_empty() {
        page += "<h2>What batching brought</h2><ul>";
        for sentence in &findings {
            let _ = write!(page, "<li>{}</li>", escape(sentence));
        }
        page += "</ul>";
    }
    for (index, figure) in figures.iter().enumerate() {
        let _ = write!(
            page,
            "<h2>Figure {}. {}</h2><p>{}</p><div class=\"plots\">",
            index + 1,
            escape(&figure.title),
            legend(figure)
        );
        for panel in &figure.panels {
            page += &plot::svg(panel, &figure.marks)?;
        }
        page += "</div>";
        page += &numbers(figure);
    }
    let _ = writeln!(
        page,
        "<footer>Made by <code>multidata {}</code>. The same results, run by run: results.json beside \
         this page.</footer></body></html>",
        escape(&results.host.arguments.join(" "))
    );
    Ok(page)
}

fn host(host: &Host) -> String {
    escape(&format!(
        "{} ({}), {}, {} CPUs, {}; {} build",
        host.program, host.date, host.kernel, host.cpus, host.cpu, host.profile
    ))
}

/// Which colour is which scheme; the same in all panels.
fn legend(figure: &Figure) -> String {
    let series = figure.panels.first().map(|panel| panel.series.as_slice()).unwrap_or_default();
    let keys = series.iter().enumerate().map(|(index, (name, _))| {
        let colour = plot::colour(index);
        format!("<span style=\"color:{colour}\">&#9679;</span> {}", escape(name))
    });
    keys.collect::<Vec<_>>().join(" &nbsp; ")
}

fn numbers(figure: &Figure) -> String {
    let mut text = "<table><tr><th>scheme</th><th>write</th>".to_owned();
    for column in COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "</tr>";
    for row in &figure.rows {
        let _ = write!(text, "<tr><td>{}</td><td>{}</td>", escape(&row.mode), escape(&row.write));
        for number in &row.figures {
            let _ = write!(text, "<td>{number}</td>");
        }
        text += "</tr>";
    }
    text + "</table>"
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
