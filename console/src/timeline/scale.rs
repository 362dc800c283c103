//! From times to places.

use jiff::Timestamp;

/// Times from the first to the last, over a width.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: Timestamp,
    seconds: i64,
    width: u32,
}

/// Distances between marks, in seconds.
const STEPS: [i64; 16] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 86_400];

impl Scale {
    /// From the first to the last of these times; one second at least.
    #[must_use]
    pub fn new(times: impl Iterator<Item = Timestamp> + Clone, width: u32) -> Option<Self> {
        let (from, to) = (times.clone().min()?, times.max()?);
        Some(Self { from, seconds: to.duration_since(from).as_secs().max(1), width: width.max(1) })
    }

    /// The place of a time, from 0 to the width.
    #[must_use]
    pub fn place(&self, time: Timestamp) -> u32 {
        let after = time.duration_since(self.from).as_secs().clamp(0, self.seconds);
        let place = i128::from(after) * i128::from(self.width) / i128::from(self.seconds);
        u32::try_from(place).unwrap_or(self.width)
    }

    /// Marks with their places, so many at most: seconds since the first time.
    #[must_use]
    pub fn marks(&self, most: u32) -> Vec<(i64, u32)> {
        let most = i64::from(most.max(1));
        let step = STEPS.into_iter().find(|step| self.seconds / step <= most);
        let step = step.unwrap_or_else(|| (self.seconds / most).max(86_400));
        let mut marks = Vec::new();
        let mut at = 0;
        while at <= self.seconds {
            let place = i128::from(at) * i128::from(self.width) / i128::from(self.seconds);
            marks.push((at, u32::try_from(place).unwrap_or(self.width)));
            at += step;
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    #[test]
    fn places_are_within_the_width() {
        let scale = Scale::new([at(0), at(100)].into_iter(), 50).expect("a scale");
        assert_eq!(
            [0, 1, 2, 50, 100, 900, -5].map(|second| scale.place(at(second))),
            [0, 0, 1, 25, 50, 50, 0]
        );
        assert!(Scale::new(std::iter::empty(), 50).is_none());
    }

    #[test]
    fn marks_are_at_round_times() {
        let scale = Scale::new([at(0), at(134)].into_iter(), 67).expect("a scale");
        assert_eq!(scale.marks(5), [(0, 0), (30, 15), (60, 30), (90, 45), (120, 60)]);
        let long = Scale::new([at(0), at(400 * 86_400)].into_iter(), 80).expect("a scale");
        assert!(long.marks(5).len() <= 6);
        let one = Scale::new([at(7)].into_iter(), 80).expect("a scale");
        assert_eq!(one.marks(5), [(0, 0), (1, 80)]);
    }
}
