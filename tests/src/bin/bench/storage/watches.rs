//! From a write to the events of watchers (P9), with one among them who reads nothing.

use anyhow::{Result, ensure};
use repot_tests::http::Api;
use repot_tests::states::Payload;
use reqwest::Method;

use super::{Flags, KEEPERS, Report, WATCHED};
use crate::body::Body;
use crate::house::{House, Side};
use crate::load::Line;
use crate::scale::watchers::{self, Watch};

/// Watchers, bytes of the object, writes a second.
const CASES: [(usize, usize, u64); 5] =
    [(1, 1_000, 20), (100, 1_000, 20), (1_000, 1_000, 20), (1, 1_000_000, 2), (100, 1_000_000, 1)];

/// Each case with each side, one after another.
pub async fn measure(house: &mut House, flags: &Flags, report: &mut Report) -> Result<()> {
    for (at, (count, bytes, writes_a_second)) in CASES.into_iter().enumerate() {
        for side in KEEPERS {
            // The list of one object is how the watcher finds what is written, so each case has it for itself.
            let name = write_one(house.line(side).api(), side, at as u64, bytes).await?;
            let access = house.access(side);
            let connect = || Line::new(&access, 1).map(|line| line.api().clone());
            let slow = connect()?;
            let path = side.collection(WATCHED);
            let unread = slow.request(Method::GET, &format!("{path}?watch=true")).send().await?;
            ensure!(unread.status().is_success(), "{} answers {}", side.name(), unread.status());
            let watch = Watch { what: "objects", path, metadata: false, count, writes_a_second };
            let readings = watchers::watch(&connect, &watch, flags.seconds).await?;
            drop(unread);
            let what = format!("{count} watchers of {bytes} bytes, {writes_a_second} writes a second");
            report.add("P9", &what, side.name(), readings);
            let gone = format!("{}/{name}", watch.path);
            house.line(side).api().request(Method::DELETE, &gone).send().await?.error_for_status()?;
        }
    }
    Ok(())
}

async fn write_one(api: &Api, side: Side, number: u64, bytes: usize) -> Result<String> {
    let body = Body::generate(side, WATCHED, bytes, Payload::Realistic, 3)?.with(number);
    let request =
        api.request(Method::POST, &side.collection(WATCHED)).header("content-type", "application/json");
    request.body(body).send().await?.error_for_status()?;
    Ok(crate::body::name(number))
}
