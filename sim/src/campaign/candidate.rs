//! The election tasks of a client process: a candidate, which writes its term to the register while it leads, and an
//! observer.

use std::time::Duration;

use palisade_client::Options;
use rand::RngExt;
use tokio::time::{sleep, timeout};

use super::journal::{Line, now_us};
use super::process::Task;
use super::register::Access;
use crate::history::{HeldAs, Holder};

/// The register's key of election 0; the keys of the others follow.
pub const FIRST_KEY: u32 = 200;

/// The number of elections.
pub const ELECTIONS: u32 = 2;

/// The interval at which an observer checks whether it has to finish.
const LOOK: Duration = Duration::from_millis(200);

fn name(election: u32) -> String {
    format!("chaos:election:{election}")
}

/// Returns the value that a candidate proclaims: its identity.
fn value(who: Holder) -> String {
    format!("{}.{}", who.client, who.acquisition)
}

/// Returns the candidate whose proclamation is `value`.
fn whose(value: &[u8]) -> Option<Holder> {
    let (client, acquisition) = std::str::from_utf8(value).ok()?.split_once('.')?;
    Some(Holder { client: client.parse().ok()?, acquisition: acquisition.parse().ok()? })
}

impl Task {
    /// Campaigns in one election after another.
    pub(super) async fn campaign(mut self) {
        while !self.is_to_finish() {
            let election = self.dice.random_range(0..ELECTIONS);
            let who = self.set_out();
            let ttl = Duration::from_millis(self.dice.random_range(500..=self.shared.settings.max_ttl_ms));
            let wait = Duration::from_millis(self.dice.random_range(300..4_000));
            let options = Options::new().ttl(ttl).node_timeout(ttl / 5).wait(wait);
            self.write(Line::Campaigns { at: now_us(), election, who });
            let campaign = self.shared.client.with(&options).election(name(election));
            let Ok(leadership) = campaign.campaign(value(who)).await else {
                sleep(self.ms(20, 200)).await;
                continue;
            };
            let term = leadership.term();
            self.write(Line::Won { at: now_us(), election, who, term });
            let end = now_us() + self.dice.random_range(50..4_000) * 1_000;
            while now_us() < end && leadership.is_valid() && !self.is_to_finish() {
                let access =
                    |write| Access { key: FIRST_KEY + election, who, token: term, mode: HeldAs::Exclusive, write };
                let number = self.access(access(None)).await;
                sleep(self.ms(0, 40)).await;
                if let Some(number) = number.filter(|_| leadership.is_valid()) {
                    self.access(access(Some(number + 1))).await;
                }
                if self.once_in(4) && leadership.proclaim(value(who)).await.is_ok() {
                    self.write(Line::Proclaimed { at: now_us(), who });
                }
                sleep(self.ms(5, 150)).await;
            }
            // The other candidates drop their leadership without resigning.
            if self.dice.random_ratio(3, 4) {
                leadership.resign().await;
            }
            sleep(self.ms(5, 500)).await;
        }
    }

    /// Observes one election after another, each for some time.
    pub(super) async fn observe(mut self) {
        while !self.is_to_finish() {
            let election = self.dice.random_range(0..ELECTIONS);
            let observer = self.set_out();
            let mut leaders = self.shared.client.election(name(election)).observe().expect("the client is open");
            let end = now_us() + self.dice.random_range(2_000..20_000) * 1_000;
            while now_us() < end && !self.is_to_finish() {
                let Ok(told) = timeout(LOOK, leaders.changed()).await else { continue };
                let Some(leader) = told.expect("the client is open") else { continue };
                let (at, term, sequence) = (now_us(), leader.term, leader.sequence);
                let line = match whose(&leader.value) {
                    Some(leader) => Line::Observed { at, election, observer, leader, term, sequence },
                    None => Line::Wrong { at, what: format!("nobody proclaims {:?}", leader.value) },
                };
                self.write(line);
            }
        }
    }
}
