//! Asks Sentinels for their master, and uses the answer with the newest fail-over.
//!
//! One Sentinel may be cut off together with an old master, so all are asked at once. The call returns when a majority
//! has answered and one of them knows the master, or when the time of the others is up. When the client connects, the
//! server itself has to confirm that it is a master.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_quorum::majority;
use redis::{Value, cmd};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::net::access::Way;
use crate::net::server::Line;
use crate::net::wire;
use crate::values::failure::Why;

/// Maximum time for a Sentinel to answer, connecting included.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval of asking the Sentinels whether the connected server is still the master.
const ASKED_EACH: Duration = Duration::from_secs(1);

/// The Sentinels of one master.
#[derive(Debug)]
pub struct Sentinels {
    name: String,
    /// The Sentinels' name of the master.
    master: String,
    list: Vec<Sentinel>,
    /// The settings to connect to the master. Its host and port are replaced by those that the Sentinels name.
    like: Way,
}

#[derive(Debug)]
struct Sentinel {
    way: Way,
    line: Mutex<Option<Line>>,
}

/// The answer of one Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MasterReport {
    /// The master is at this address, since the fail-over with this number.
    There { epoch: u64, host: String, port: u16 },
    /// The Sentinel watches no master of that name.
    Unknown,
}

impl Sentinels {
    /// Creates the Sentinels at `ways`, for the master that they call `master`. The settings to connect to the master
    /// are those of `like`.
    pub fn new(master: String, ways: Vec<Way>, like: Way) -> Self {
        let names: Vec<_> = ways.iter().map(Way::name).collect();
        let name = format!("{master} (sentinels {})", names.join(", "));
        let list = ways.into_iter().map(|way| Sentinel { way, line: Mutex::default() }).collect();
        Self { name, master, list, like }
    }

    /// Returns the name of the master, and the Sentinels' addresses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the Sentinels' name of the master.
    pub fn master_name(&self) -> &str {
        &self.master
    }

    /// Returns the ways to each of the Sentinels.
    pub fn ways(&self) -> impl Iterator<Item = &Way> {
        self.list.iter().map(|sentinel| &sentinel.way)
    }

    /// Returns a [`Way`] with the settings to connect to the master. Its host and port are placeholders.
    pub fn like(&self) -> &Way {
        &self.like
    }

    /// Returns the way to the master.
    ///
    /// # Errors
    /// No Sentinel that answers knows the master, or none answers.
    pub async fn master(&self) -> Result<Way, Why> {
        let mut asked: FuturesUnordered<_> =
            self.list.iter().map(|sentinel| sentinel.ask_in_time(&self.master)).collect();
        let (mut said, mut whys) = (vec![], vec![]);
        while let Some((name, answer)) = asked.next().await {
            match answer {
                Ok(says) => said.push(says),
                Err(failure) => whys.push(format!("{name}: {failure}")),
            }
            if said.len() >= majority(self.list.len()) && newest(&said).is_some() {
                break;
            }
        }
        match newest(&said) {
            Some((host, port)) => Ok(self.like.to(host, port)),
            None if said.len() < majority(self.list.len()) => {
                Err(Why::Unreachable(format!("no Sentinel tells where it is: {}", whys.join("; "))))
            }
            None => Err(Why::Unfit(format!(
                "the Sentinels watch no master of the name {}: see SENTINEL MASTERS there",
                self.master
            ))),
        }
    }

    /// Waits until the Sentinels name another server than the one at `address`.
    pub async fn name_another(&self, address: &str) {
        loop {
            sleep(ASKED_EACH).await;
            if self.master().await.is_ok_and(|way| way.name() != address) {
                return;
            }
        }
    }
}

/// Returns the master's address in the answer with the newest fail-over.
fn newest(said: &[MasterReport]) -> Option<(&str, u16)> {
    let known = said.iter().filter_map(|says| match says {
        MasterReport::There { epoch, host, port } => Some((epoch, (&**host, *port))),
        MasterReport::Unknown => None,
    });
    known.max_by_key(|(epoch, _)| **epoch).map(|(_, place)| place)
}

impl Sentinel {
    /// Asks one Sentinel for the master; returns the Sentinel's address and its answer.
    async fn ask_in_time(&self, master: &str) -> (&str, Result<MasterReport, Why>) {
        let answer = timeout(PATIENCE, self.ask(master)).await;
        (self.way.name(), answer.unwrap_or(Err(Why::Silent)))
    }

    async fn ask(&self, master: &str) -> Result<MasterReport, Why> {
        let mut place = self.line.lock().await;
        // The connection is stored again only if the Sentinel answers; otherwise the next request opens a new one.
        let mut line = match place.take() {
            Some(line) => line,
            None => Line::open(&self.way).await?,
        };
        let question = |word| cmd("SENTINEL").arg(word).arg(master).take();
        let said = line.ask_each(&[question("GET-MASTER-ADDR-BY-NAME"), question("MASTER")]).await?;
        *place = Some(line);
        to_report(&said)
    }
}

/// Converts a Sentinel's replies to GET-MASTER-ADDR-BY-NAME and MASTER.
fn to_report(replies: &[Result<Value, Why>]) -> Result<MasterReport, Why> {
    let no_answer = || Why::Broken("it does not answer as a Sentinel does".to_owned());
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    match replies {
        [Ok(Value::Nil), _] => Ok(MasterReport::Unknown),
        [Ok(Value::Array(place)), info] => {
            let (host, port) = match &place[..] {
                [host, port] => (text(host), text(port).and_then(|port| port.parse().ok())),
                _ => return Err(no_answer()),
            };
            // If the user may not run the second command, the fail-over's number counts as 0.
            let epoch = info.as_ref().ok().and_then(|info| wire::text(info, "config-epoch")?.parse().ok()).unwrap_or(0);
            let (Some(host), Some(port)) = (host, port) else { return Err(no_answer()) };
            Ok(MasterReport::There { epoch, host, port })
        }
        [Err(why), _] => Err(why.clone()),
        _ => Err(no_answer()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_newest_fail_over_counts() {
        let there = |epoch, host: &str| MasterReport::There { epoch, host: host.to_owned(), port: 1 };
        assert_eq!(
            newest(&[there(3, "old"), there(4, "new"), MasterReport::Unknown, there(3, "old")]),
            Some(("new", 1))
        );
        assert_eq!(newest(&[MasterReport::Unknown]), None);
    }

    #[test]
    fn what_a_sentinel_says() {
        let place = Value::Array(vec![text("h"), text("7000")]);
        let info = Value::Map(vec![(text("config-epoch"), text("12"))]);
        let there = |epoch| MasterReport::There { epoch, host: "h".to_owned(), port: 7000 };
        assert_eq!(to_report(&[Ok(place.clone()), Ok(info)]).unwrap(), there(12));
        assert_eq!(to_report(&[Ok(place), Ok(Value::Nil)]).unwrap(), there(0));
        assert_eq!(to_report(&[Ok(Value::Nil), Ok(Value::Nil)]).unwrap(), MasterReport::Unknown);
        assert!(to_report(&[Ok(Value::Int(1)), Ok(Value::Nil)]).is_err() && to_report(&[]).is_err());
    }
}
