//! One panel as SVG.

use super::figure::Panel;
use crate::{Attempt, Failure};
use plotters::prelude::*;

const WIDTH: u32 = 430;
const HEIGHT: u32 = 300;

/// A colour for each scheme, told apart also by who sees few colours (Okabe and Ito's palette).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// How lines are told apart beyond that: whole ones with full points, and those in dashes of a length with hollow ones.
const DASHES: [(Option<u32>, &str); 3] =
    [(None, ""), (Some(10), " (dashes)"), (Some(3), " (dots)")];

/// How the line of the series at `index` is broken, and the word for it.
fn dashes(index: usize) -> (Option<u32>, &'static str) {
    DASHES[index / COLOURS.len() % DASHES.len()]
}

/// What the series at `index` is known by in the legend, as HTML: its point, and behind it how its line is broken.
pub(super) fn key(index: usize) -> (String, &'static str) {
    let (dash, word) = dashes(index);
    let point = if dash.is_some() { "&#9675;" } else { "&#9679;" };
    (format!("<span style=\"color:{}\">{point}</span>", colour(index)), word)
}

/// The colour of the series at `index`, as CSS writes it.
pub(super) fn colour(index: usize) -> String {
    let RGBColor(red, green, blue) = COLOURS[index % COLOURS.len()];
    format!("rgb({red},{green},{blue})")
}

/// Draws a panel over these marks.
pub(super) fn svg(panel: &Panel, axis: &str, marks: &[String]) -> Result<String, Failure> {
    let mut text = String::new();
    draw(panel, axis, marks, &mut text).attempt(|| format!("cannot draw \"{}\"", panel.title))?;
    Ok(text)
}

fn draw(
    panel: &Panel,
    axis: &str,
    marks: &[String],
    text: &mut String,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let area = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let largest = panel.series.iter().flat_map(|(_, points)| points.iter().flatten());
    let top = largest.fold(0.0_f64, |top, value| top.max(*value)).max(f64::MIN_POSITIVE) * 1.1;
    let right = marks.len().saturating_sub(1) as f64 + 0.35;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{} ({})", panel.title, panel.unit), ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(52)
        .build_cartesian_2d(-0.35..right, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * marks.len() + 1)
        .x_label_formatter(&|at| mark_at(marks, *at))
        .x_desc(axis)
        .y_labels(6)
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 12))
        .draw()?;
    for (index, (_, points)) in panel.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter_map(|(at, value)| Some((at as f64, (*value)?)))
            .collect();
        let line = points.iter().copied();
        let point = match dashes(index) {
            (None, _) => {
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
                colour.filled()
            }
            (Some(dash), _) => {
                let style = colour.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(line, dash, dash, style))?;
                colour.stroke_width(1)
            }
        };
        chart.draw_series(points.iter().map(|at| Circle::new(*at, 4, point)))?;
    }
    area.present()
}

/// The mark that stands at a place of the axis, if one does.
fn mark_at(marks: &[String], at: f64) -> String {
    let nearest = at.round();
    match (at - nearest).abs() < 0.01 && nearest >= 0.0 {
        true => marks.get(nearest as usize).cloned().unwrap_or_default(),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_series_than_colours_are_told_apart() {
        let mut keys: Vec<_> = (0..COLOURS.len() * DASHES.len()).map(key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 18);
        let marks = ["1", "2"].map(str::to_owned);
        let drawn = |count: usize| {
            let series = (0..count).map(|at| (at.to_string(), vec![Some(1.0), Some(2.0)]));
            let panel = Panel { title: "Throughput", unit: "Gbit/s", series: series.collect() };
            let text = svg(&panel, "connections", &marks).expect("drawn");
            let is_hollow = |it: &&str| it.contains("<circle") && it.contains("fill=\"none\"");
            (text.lines().filter(is_hollow).count(), text.matches("<polyline").count())
        };
        let ((hollow, whole), (hollow_too, broken)) = (drawn(6), drawn(7));
        assert_eq!((hollow, hollow_too), (0, 2));
        assert!(broken > whole + 2, "{broken} lines, and {whole} without the one in dashes");
    }
}
