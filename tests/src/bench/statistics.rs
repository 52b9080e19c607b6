//! Medians and spreads. Pure.

use serde::Serialize;

/// What several samples of one thing say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The one in the middle; of an even number, the mean of the two.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

/// Sums samples up; `None` if there are none.
#[must_use]
pub fn summarise(samples: &[f64]) -> Option<Summary> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (lowest, highest) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Summary { median, lowest, highest })
}

/// The median of the quotients, round by round: what both sides of a round met alike cancels out.
///
/// `None` unless both have the same number of samples, and some, and no divisor is zero.
#[must_use]
pub fn paired_ratio(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    if ours.len() != theirs.len() || theirs.contains(&0.0) {
        return None;
    }
    let quotients: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    summarise(&quotients).map(|summary| summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle_whatever_the_order() {
        let summary = summarise(&[5.0, 1.0, 100.0, 3.0, 4.0]).unwrap();
        assert_eq!(summary, Summary { median: 4.0, lowest: 1.0, highest: 100.0 });
        assert_eq!(summarise(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(summarise(&[]), None);
    }

    #[test]
    fn a_slow_moment_that_both_sides_met_does_not_change_the_ratio() {
        assert_eq!(paired_ratio(&[9.0, 0.9, 9.0], &[10.0, 1.0, 10.0]), Some(0.9));
        assert_eq!(paired_ratio(&[9.0], &[10.0, 1.0]), None);
        assert_eq!(paired_ratio(&[9.0], &[0.0]), None);
    }
}
