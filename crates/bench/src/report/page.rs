//! The page around the plots.

use super::figure::Figure;
use super::plot;
use crate::Failure;
use crate::results::{Host, Results};
use std::fmt::Write as _;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;\
color:#222}h2{margin-top:2em;border-top:1px solid #ccc;padding-top:1em}table{border-collapse:\
collapse;font-size:13px}th,td{padding:2px 8px;text-align:right;border-bottom:1px solid #e5e5e5}\
th:first-child,td:first-child{text-align:left}.plots{display:flex;flex-wrap:wrap;gap:8px}\
footer{margin-top:3em;color:#666;font-size:13px}";

/// What a page says beside its figures.
pub(super) struct Words {
    pub(super) title: &'static str,
    pub(super) heading: &'static str,
    /// As HTML.
    pub(super) foreword: &'static str,
    pub(super) found: &'static str,
    pub(super) findings: Vec<String>,
    /// Heads of the tables: of the words, and of the figures.
    pub(super) words: [&'static str; 2],
    pub(super) columns: Vec<&'static str>,
}

/// The whole page.
pub(super) fn render(
    results: &Results,
    figures: &[Figure],
    words: &Words,
) -> Result<String, Failure> {
    let Words { title, heading, foreword, .. } = words;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Multidata: {title}\
         </title><style>{STYLE}</style></head><body><h1>{heading}</h1><p>{}</p><p>{foreword}</p>",
        host(&results.host)
    );
    if !words.findings.is_empty() {
        let _ = write!(page, "<h2>{}</h2><ul>", words.found);
        for sentence in &words.findings {
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
            page += &plot::svg(panel, figure.axis, &figure.marks)?;
        }
        page += "</div>";
        if let Some(bars) = &figure.bars {
            let _ = write!(page, "<p>{}</p>{}", bars.legend(), bars.svg());
        }
        page += &numbers(figure, words);
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
    let part =
        if host.complete { "" } else { ". Not all was measured: this is what was until then" };
    escape(&format!(
        "{} ({}), {}, {} CPUs, {}; {} build{part}",
        host.program, host.date, host.kernel, host.cpus, host.cpu, host.profile
    ))
}

/// Which colour and line is which scheme; the same in all panels.
fn legend(figure: &Figure) -> String {
    let series = figure.panels.first().map(|panel| panel.series.as_slice()).unwrap_or_default();
    let keys = series.iter().enumerate().map(|(index, (name, _))| {
        let (point, line) = plot::key(index);
        format!("{point} {}{line}", escape(name))
    });
    keys.collect::<Vec<_>>().join(" &nbsp; ")
}

fn numbers(figure: &Figure, words: &Words) -> String {
    if figure.rows.is_empty() {
        return String::new();
    }
    let mut text = "<table><tr>".to_owned();
    for column in words.words.iter().chain(&words.columns) {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "</tr>";
    for row in &figure.rows {
        let [first, second] = row.words.each_ref().map(|word| escape(word));
        let _ = write!(text, "<tr><td>{first}</td><td>{second}</td>");
        for number in &row.figures {
            let _ = write!(text, "<td>{number}</td>");
        }
        text += "</tr>";
    }
    text + "</table>"
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
