//! How long steps take, by the migrations of the past.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::migration::{Executor, Migration, Mode, StepRecord};

/// How long something took, over some migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// The median, in seconds.
    pub median_seconds: i64,
    /// The longest one, in seconds.
    pub longest_seconds: i64,
    /// Of how many migrations.
    pub count: usize,
}

/// What the migrations of one mode took that have succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// How many of them there are.
    pub migrations: usize,
    /// From the first start of a step to the last end.
    pub total: Option<Spread>,
    /// How long the API was away, in those that have recorded it.
    pub outage: Option<Spread>,
    /// Each step, where it was reached.
    pub steps: BTreeMap<String, Spread>,
}

impl Durations {
    /// Those of the migrations with this mode and executor.
    #[must_use]
    pub fn of<'a>(past: impl IntoIterator<Item = &'a Migration>, mode: Mode, executor: Executor) -> Self {
        let of_mode: Vec<&Migration> = past
            .into_iter()
            .filter(|one| one.has_succeeded() && (one.mode, one.executor) == (mode, executor))
            .collect();
        let mut steps: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (_, step) in of_mode.iter().flat_map(|one| one.steps()) {
            if let Some(seconds) = step.seconds().filter(|_| step.state == "Succeeded") {
                steps.entry(step.name.clone()).or_default().push(seconds);
            }
        }
        let totals = of_mode.iter().filter_map(|one| one.total_seconds()).collect();
        let outages = of_mode.iter().filter_map(|one| one.api_outage.as_ref()?.seconds).collect();
        Self {
            migrations: of_mode.len(),
            total: Spread::of(totals),
            outage: Spread::of(outages),
            steps: steps.into_iter().filter_map(|(step, all)| Some((step, Spread::of(all)?))).collect(),
        }
    }
}

impl Migration {
    /// From its first start of a step to its last end, in seconds; `None` while it runs.
    #[must_use]
    pub fn total_seconds(&self) -> Option<i64> {
        let (from, to) = self.started().zip(self.ended())?;
        Some(to.duration_since(from).as_secs().max(0))
    }

    /// How long a step of it took, in seconds.
    #[must_use]
    pub fn step_seconds(&self, step: &str) -> Option<i64> {
        self.step(step).and_then(StepRecord::seconds)
    }
}

impl Spread {
    fn of(mut all: Vec<i64>) -> Option<Self> {
        all.sort_unstable();
        let median_seconds = *all.get(all.len().checked_sub(1)? / 2)?;
        Some(Self { median_seconds, longest_seconds: *all.last()?, count: all.len() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::tests::{classic, read};

    #[test]
    fn spread_has_the_lower_median_and_the_longest() {
        let spread =
            |median_seconds, longest_seconds, count| Some(Spread { median_seconds, longest_seconds, count });
        assert_eq!(Spread::of(vec![]), None);
        assert_eq!(Spread::of(vec![9]), spread(9, 9, 1));
        assert_eq!(Spread::of(vec![9, 1, 5, 30]), spread(5, 30, 4));
    }

    #[test]
    fn only_migrations_that_have_succeeded_count() {
        let mut failed = classic();
        failed["status"]["phase"] = json!("Failed");
        let past = [read(classic()), read(failed)];
        let found = Durations::of(&past, Mode::Classic, Executor::Repot);
        assert_eq!(found.migrations, 1);
        assert_eq!(found.total.map(|total| total.median_seconds), Some(65));
        assert_eq!(found.outage.map(|outage| outage.longest_seconds), Some(7));
        assert_eq!(found.steps.get("TurnTaken").map(|step| step.median_seconds), Some(2));
        assert_eq!(Durations::of(&past, Mode::Live, Executor::Repot), Durations::default());
    }
}
