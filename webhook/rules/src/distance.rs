//! How far two seeds are from each other.

use std::fmt;

use repot_api::{
    gardener::shoot::{Seed, Shoot},
    names::REGION_DISTANCE_THRESHOLD,
};

use crate::facts::{Distances, Facts};

/// Why a distance is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A seed has no region, or is not there.
    NoRegion,
    /// No ConfigMap is for the CloudProfile.
    NoConfigMap(String),
    /// The ConfigMap has nothing about the source region.
    NoSource(String, String),
    /// It has nothing about the way between the two.
    NoWay(String, String, String),
    /// Its entry cannot be read.
    Unreadable(String, String, String),
    /// There is a distance, but nothing to compare it with.
    NoThreshold(String, u64),
    /// The threshold of an annotation is no number.
    BadThreshold(String, &'static str, String),
}

/// What a distance must not be greater than.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// In the unit of the distances.
    pub value: u64,
    /// Where it comes from, as messages have it.
    pub origin: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRegion => write!(f, "a seed tells no region"),
            Self::NoConfigMap(profile) => {
                write!(f, "no region ConfigMap of the scheduler is for the CloudProfile {profile:?}")
            }
            Self::NoSource(map, from) => write!(f, "ConfigMap {map:?} has no distances from region {from:?}"),
            Self::NoWay(map, from, to) => {
                write!(f, "ConfigMap {map:?} has no distance from region {from:?} to region {to:?}")
            }
            Self::Unreadable(map, from, why) => {
                write!(f, "the distances from region {from:?} in ConfigMap {map:?} cannot be read: {why}")
            }
            Self::NoThreshold(map, distance) => write!(
                f,
                "the distance is {distance}, but ConfigMap {map:?} says by no annotation which one is too great"
            ),
            Self::BadThreshold(map, key, text) => {
                write!(f, "annotation {key}={text:?} of ConfigMap {map:?} is not a number from 0 on")
            }
        }
    }
}

/// The way from one seed to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both are in one region.
    SameRegion,
    /// So far, and how far is allowed.
    Measured {
        /// In whatever unit the operator chose.
        distance: u64,
        /// Greater is too far.
        threshold: Threshold,
    },
    /// Nobody knows.
    Unknown(Unknown),
}

impl Way {
    /// The distance as far as it is known.
    #[must_use]
    pub fn distance(&self) -> Option<u64> {
        match self {
            Self::SameRegion => Some(0),
            Self::Measured { distance, .. } | Self::Unknown(Unknown::NoThreshold(_, distance)) => {
                Some(*distance)
            }
            Self::Unknown(_) => None,
        }
    }

    /// Why one etcd cannot live in both seeds; `None` where it can.
    #[must_use]
    pub fn objection(&self, source: &str, destination: &str) -> Option<String> {
        match self {
            Self::SameRegion => None,
            Self::Measured { distance, threshold } => (*distance > threshold.value).then(|| {
                format!(
                    "the distance from seed {source:?} to seed {destination:?} is {distance}, more than {}, which comes from {}",
                    threshold.value, threshold.origin
                )
            }),
            Self::Unknown(why) => Some(format!(
                "the distance from seed {source:?} to seed {destination:?} cannot be determined: {why}"
            )),
        }
    }
}

/// Measures the way from a source to a destination seed, directed, for the CloudProfile of a Shoot.
#[must_use]
pub fn between(source: &str, destination: &str, shoot: Shoot<'_>, facts: &Facts) -> Way {
    let region = |name| facts.seed(name).and_then(|seed| Seed(seed).region());
    let (Some(from), Some(to)) = (region(source), region(destination)) else {
        return Way::Unknown(Unknown::NoRegion);
    };
    if from == to {
        return Way::SameRegion;
    }
    measure(from, to, shoot.cloud_profile().unwrap_or_default(), facts).unwrap_or_else(Way::Unknown)
}

fn measure(from: &str, to: &str, profile: &str, facts: &Facts) -> Result<Way, Unknown> {
    let fits = |one: &&Distances| one.profiles.iter().any(|own| own == profile);
    let map = facts.distances.iter().find(fits).ok_or_else(|| Unknown::NoConfigMap(profile.to_owned()))?;
    let name = || map.name.clone();
    let entry = map.from.get(from).ok_or_else(|| Unknown::NoSource(name(), from.to_owned()))?;
    let entry = entry.as_ref().map_err(|why| Unknown::Unreadable(name(), from.to_owned(), why.clone()))?;
    let distance = *entry.get(to).ok_or_else(|| Unknown::NoWay(name(), from.to_owned(), to.to_owned()))?;
    let threshold = threshold(map, facts)?.ok_or_else(|| Unknown::NoThreshold(name(), distance))?;
    Ok(Way::Measured { distance, threshold })
}

/// What gardener-apiserver takes where [`REGION_DISTANCE_THRESHOLD`] is not set (`defaultInterRegionDistanceThreshold` in
/// plugin/pkg/shoot/validator of Gardener 1.150). It does not read the paper's annotation.
const GARDENER_DEFAULT: u64 = 180;

/// The smallest of all thresholds that hold: those of the two annotations; that of the flag, where there is no annotation; and
/// beside a Gardener its default, where it finds no annotation that it reads. So what is allowed here passes there, too.
fn threshold(map: &Distances, facts: &Facts) -> Result<Option<Threshold>, Unknown> {
    let mut all = Vec::new();
    for (key, text) in Distances::THRESHOLDS.into_iter().zip(&map.thresholds) {
        let Some(text) = text else { continue };
        let value = text.parse().map_err(|_| Unknown::BadThreshold(map.name.clone(), key, text.clone()))?;
        all.push(Threshold { value, origin: format!("annotation {key} of ConfigMap {:?}", map.name) });
    }
    let flag = facts.settings.default_threshold.filter(|_| all.is_empty());
    all.extend(flag.map(|value| Threshold { value, origin: "flag --default-distance-threshold".to_owned() }));
    let [_, read_by_gardener] = &map.thresholds;
    // Only gardener-apiserver serves shoots/binding.
    if facts.binding && read_by_gardener.is_none() {
        let origin = format!(
            "gardener-apiserver where annotation {REGION_DISTANCE_THRESHOLD} of ConfigMap {:?} is not set",
            map.name
        );
        all.push(Threshold { value: GARDENER_DEFAULT, origin });
    }
    Ok(all.into_iter().min_by_key(|threshold| threshold.value))
}
