//! Called off.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::sites::SiteName;
use repot_tests::test_env::TestEnv;

use super::load::Load;
use super::world::{AWAY, HOME, Moving, client_of};

/// Changes until all six vote: nothing is removed yet.
const ALL_SIX: usize = 6;

async fn abort_after(env: &TestEnv, changes: &[usize]) -> Result<()> {
    let mut moving = Moving::start(env, Duration::ZERO).await?;
    let load = Load::start(moving.fleet.accesses(), 1).await?;
    for &at in changes {
        moving.world.changes.clear();
        moving.world.wanted.desired = AWAY;
        moving.advance(at).await?;
        println!("called off after {:?}", moving.world.changes.last());
        moving.world.wanted.desired = HOME;
        moving.until_done(SiteName::Source).await?;
    }
    let client = client_of(&moving.world.sites, "source-0", SiteName::Source).await?;
    let report = load.finish(&client).await?;
    ensure!(report.failures.is_empty(), "{:?}", report.failures);
    println!("{report:?}");
    Ok(())
}

#[test]
fn move_that_is_called_off_with_six_voters_returns_to_the_first_three() {
    run(async |env| abort_after(env, &[ALL_SIX]).await);
}

#[test]
#[ignore = "make soak: every step"]
fn move_that_is_called_off_at_any_step_returns_to_the_first_three() {
    run(async |env| abort_after(env, &[1, 2, 3, 4, 5, ALL_SIX]).await);
}
