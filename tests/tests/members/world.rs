//! A driver and the members that it adds, promotes and removes.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_controllers::members::{Change, DesiredMembership, Driver, Limits, MemberSlot, Outcome, Pass};
use repot_etcd_core::members::{Desired, Role};
use repot_tests::sites::{SiteName, SiteOptions, Sites};
use repot_tests::test_env::TestEnv;
use repot_tests::wait::POLL_INTERVAL;
use tokio::time::{Instant, sleep};

pub const DEADLINE: Duration = Duration::from_secs(120);

pub struct World<'a> {
    pub env: &'a TestEnv,
    pub sites: Sites,
    pub driver: Driver,
    pub wanted: DesiredMembership,
    /// Every change, in order.
    pub changes: Vec<Change>,
    /// Whether a member that was added is started.
    pub starts: bool,
    /// The member that was started and is no voter yet.
    joining: Option<String>,
}

/// So many voters at the source, and nothing elsewhere.
pub fn alone(voters: usize, before: usize) -> Desired {
    Desired { source: voters, destination: 0, source_before: before, release_source: false }
}

impl<'a> World<'a> {
    /// Places on both sites, and a cluster of the first so many at the source.
    pub async fn start(env: &'a TestEnv, options: SiteOptions, founders: usize) -> Result<Self> {
        let mut sites = Sites::new(env, options).await?;
        sites.found(env, founders).await?;
        let slots =
            |site| sites.names(site).iter().map(|name| slot(&sites, name)).collect::<Result<Vec<_>>>();
        let wanted = DesiredMembership {
            source: slots(SiteName::Source)?,
            destination: slots(SiteName::Destination)?,
            desired: alone(founders, founders),
            lost: Default::default(),
            readdress: None,
        };
        let driver = new_driver(&sites);
        Ok(Self { env, sites, driver, wanted, changes: Vec::new(), starts: true, joining: None })
    }

    /// One pass, and what whoever runs the Pods makes of it.
    pub async fn pass(&mut self) -> Result<Pass> {
        self.start_again()?;
        let pass = self.driver.pass(&self.wanted).await;
        if let Outcome::Changed(change) = &pass.outcome {
            println!("{change:?}");
            match change {
                Change::Added { slot } if self.starts => self.join(slot, &pass)?,
                Change::Removed { slot } => self.sites.discard(slot)?,
                Change::Promoted { .. } => self.joining = None,
                _ => {}
            }
            self.changes.push(change.clone());
        }
        Ok(pass)
    }

    /// Passes until one is as it should be.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Outcome) -> bool) -> Result<Pass> {
        let end = Instant::now() + DEADLINE;
        loop {
            let pass = self.pass().await?;
            if is(&pass.outcome) {
                return Ok(pass);
            }
            ensure!(Instant::now() < end, "waited for {what}: {:?}", pass.outcome);
            sleep(pass.again.clamp(POLL_INTERVAL, Duration::from_millis(200))).await;
        }
    }

    pub async fn until_done(&mut self) -> Result<Pass> {
        let pass = self.until("the members", |outcome| *outcome == Outcome::Done).await?;
        let seen = pass.seen.as_ref().context("it saw nothing")?;
        ensure!(seen.members.iter().all(|member| member.role == Role::Voter && member.healthy), "{seen:?}");
        Ok(pass)
    }

    pub async fn until_waiting(&mut self, reason: &str) -> Result<Pass> {
        self.until(reason, |outcome| matches!(outcome, Outcome::Waiting(why) if why.reason == reason)).await
    }

    /// Names of all members.
    pub fn names(pass: &Pass) -> Vec<&str> {
        let members = pass.seen.iter().flat_map(|seen| &seen.members);
        let mut names: Vec<_> = members.map(|member| member.slot.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// A driver that knows nothing of what was before.
    pub fn restart_driver(&mut self) {
        self.driver = new_driver(&self.sites);
    }

    /// A member that joins asks any other for the list of members, and ends when it is not in it yet. Whoever runs it starts it again.
    fn start_again(&mut self) -> Result<()> {
        let Some(slot) = self.joining.as_ref().filter(|slot| self.sites.is_started(slot)) else {
            return Ok(());
        };
        let process = self.sites.process(slot)?;
        match process.exited() {
            Some(_) => process.restart(),
            None => Ok(()),
        }
    }

    fn join(&mut self, slot: &str, pass: &Pass) -> Result<()> {
        self.joining = Some(slot.to_owned());
        let Some(seen) = &pass.seen else { bail!("a change without a look") };
        let mut members = Vec::new();
        for name in seen.members.iter().map(|member| member.slot.as_str()).chain([slot]) {
            members.push((name.to_owned(), self.sites.peer_url(name)?));
        }
        self.sites.join(self.env, slot, &members)
    }
}

fn new_driver(sites: &Sites) -> Driver {
    Driver::new(sites.access(Vec::new()), Limits::default())
}

fn slot(sites: &Sites, name: &str) -> Result<MemberSlot> {
    Ok(MemberSlot {
        name: name.to_owned(),
        peer_urls: vec![sites.peer_url(name)?],
        client_url: sites.url(name, SiteName::Source)?,
    })
}
