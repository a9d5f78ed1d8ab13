//! Where time goes, as bars lying one below the other, each of its parts.

use super::page::escape;
use super::plot;
use std::fmt::Write as _;

const WIDTH: f64 = 880.0;
/// Where the bars begin: to the left of it are their names.
const LEFT: f64 = 190.0;
const RIGHT_MARGIN: f64 = 60.0;
const TOP: f64 = 30.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_STEP: f64 = 21.0;
const AXIS_HEIGHT: f64 = 44.0;
/// Distances between marks of the axis, times a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// About so many marks.
const MARKS: f64 = 6.0;
/// What is no work is drawn pale.
const PALE: &str = "rgb(221,221,221)";

/// A plot of bars.
pub(super) struct Bars {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// What the parts are called; the last is no work.
    pub(super) parts: &'static [&'static str],
    /// Each bar: its name, and its parts.
    pub(super) bars: Vec<(String, Vec<f64>)>,
}

impl Bars {
    fn colour(&self, part: usize) -> String {
        match part + 1 == self.parts.len() {
            true => PALE.to_owned(),
            false => plot::colour(part),
        }
    }

    /// Which colour is which part, as HTML.
    pub(super) fn legend(&self) -> String {
        let keys = self.parts.iter().enumerate().map(|(part, name)| {
            format!("<span style=\"color:{}\">&#9632;</span> {}", self.colour(part), escape(name))
        });
        keys.collect::<Vec<_>>().join(" &nbsp; ")
    }

    /// The plot.
    pub(super) fn svg(&self) -> String {
        let height = TOP + BAR_STEP * self.bars.len() as f64 + AXIS_HEIGHT;
        let bottom = height - AXIS_HEIGHT;
        let wholes = self.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>());
        let longest = wholes.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let scale = (WIDTH - LEFT - RIGHT_MARGIN) / longest;
        let mut text = format!(
            "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\">\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\
             <text x=\"{}\" y=\"18\" font-size=\"15\" text-anchor=\"middle\">{} ({})</text>",
            WIDTH / 2.0,
            escape(self.title),
            escape(self.unit)
        );
        let step = step(longest);
        let mut mark = 0.0;
        while mark <= longest * 1.000_001 {
            let x = LEFT + mark * scale;
            let _ = write!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                shown(mark, step)
            );
            mark += step;
        }
        for (index, (name, parts)) in self.bars.iter().enumerate() {
            self.bar(&mut text, TOP + BAR_STEP * index as f64 + 3.0, scale, (name, parts));
        }
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{TOP}\" x2=\"{LEFT}\" y2=\"{bottom}\" stroke=\"#222\"/>\
             <text x=\"{LEFT}\" y=\"{:.1}\">{}</text></svg>",
            bottom + 34.0,
            escape(self.unit)
        );
        text
    }

    fn bar(&self, text: &mut String, y: f64, scale: f64, (name, parts): (&str, &[f64])) {
        let base = y + BAR_HEIGHT - 4.0;
        let _ = write!(
            text,
            "<text x=\"{}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escape(name)
        );
        let mut x = LEFT;
        for (part, value) in parts.iter().enumerate() {
            let (width, colour) = (value * scale, self.colour(part));
            let _ = write!(
                text,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" \
                 fill=\"{colour}\"><title>{}: {value:.3}</title></rect>",
                escape(self.parts.get(part).unwrap_or(&""))
            );
            x += width;
        }
        let whole: f64 = parts.iter().sum();
        let _ = write!(text, "<text x=\"{:.1}\" y=\"{base:.1}\">{whole:.3}</text>", x + 5.0);
    }
}

/// A round distance between marks, for an axis of this length.
fn step(longest: f64) -> f64 {
    let power = 10.0_f64.powf((longest / MARKS).log10().floor());
    let fitting = STEPS.iter().map(|step| step * power).find(|step| longest / step <= MARKS);
    fitting.unwrap_or(10.0 * power)
}

/// A mark with as many digits as its distance from the next needs.
fn shown(mark: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{mark:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_parts_and_the_axis_is_round() {
        let bars = Bars {
            title: "Where time goes",
            unit: "s/GB",
            parts: &["device", "rest & co", "waiting"],
            bars: vec![
                ("single <1>".to_owned(), vec![2.0, 1.0, 1.0]),
                ("multidata".to_owned(), vec![0.5, 0.5, 0.0]),
            ],
        };
        let svg = bars.svg();
        // 630 wide for 4 s/GB.
        for part in
            ["width=\"315.0\"", "width=\"157.5\"", "width=\"78.8\"", "x=\"505.0\"", ">4.000<"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        for mark in [">0<", ">1<", ">2<", ">3<", ">4<"] {
            assert!(svg.contains(mark), "{mark}: {svg}");
        }
        assert!(svg.contains("single &lt;1&gt;") && bars.legend().contains("rest &amp; co"));
        assert!(svg.contains(PALE) && bars.legend().contains(PALE));
        for (longest, wanted) in [(0.37, 0.1), (6.0, 1.0), (61.0, 20.0)] {
            assert!((step(longest) - wanted).abs() < 1e-9, "{}", step(longest));
        }
        assert_eq!([shown(0.3, 0.1), shown(20.0, 20.0), shown(0.02, 0.01)], ["0.3", "20", "0.02"]);
    }
}
