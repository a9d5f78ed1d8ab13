//! The figures a reader of several runs wants.

/// The middle value, or the mean of the two middle values; `None` for no value at all. Values that
/// are not numbers are ignored.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// `numerator / denominator`, or `None` where that says nothing.
#[must_use]
pub fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    let quotient = numerator / denominator;
    (denominator > 0.0 && quotient.is_finite()).then_some(quotient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN, 7.0]), Some(7.0));
    }

    #[test]
    fn an_outlier_does_not_move_the_median() {
        assert_eq!(median(&[10.0, 10.1, 1_000.0]), Some(10.1));
    }

    #[test]
    fn a_ratio_to_nothing_says_nothing() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
    }
}
