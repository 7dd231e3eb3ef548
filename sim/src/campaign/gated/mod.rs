//! Resources that refuse late writes by themselves: lists behind a gate, and a table behind a fence of PostgreSQL.
//!
//! Client processes write to them while they hold a lock, and also after they have lost it, since they do not check
//! that ([`writer`]). Each write is an entry with its token, so the entries of a resource show which writes landed, in
//! their order. A [`reader`] reads them all the time, and `judge` compares them with the answers that the writers
//! received, and with the faults after which the gates still had to know their tokens ([`trials`]).

pub mod judge;
pub mod landed;
pub mod pair;
pub mod postgresql;
pub mod reader;
mod store;
pub mod trials;
pub mod writer;

use std::path::Path;

use tokio::sync::Mutex;

use self::landed::Landed;
use self::pair::Pair;
use self::postgresql::PostgreSql;
use self::trials::Trials;
use super::machine::Common;
use super::process::key_name;
use super::resource::{GATES, IN_POSTGRESQL, Place, Resource, name};

/// All resources, and the servers that only the resources use.
#[derive(Debug)]
pub struct Data {
    /// The resources.
    pub resources: Vec<Resource>,
    /// The two servers with gates; `None` in a cluster, whose nodes have the gates.
    pub pair: Option<Mutex<Pair>>,
    /// PostgreSQL, if it is installed.
    pub postgresql: Option<Mutex<PostgreSql>>,
    /// The writes that were seen in the resources.
    pub landed: Landed,
    /// The faults of the resources' servers: gates and fences still had to know their tokens after them.
    pub trials: Trials,
}

impl Data {
    /// Starts the servers of the resources, or uses those of a cluster, at these URLs.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn start(common: &Common, folder: &Path, cluster: Option<Vec<String>>) -> Result<Self, String> {
        let (pair, postgresql) = match cluster {
            Some(_) => (None, None),
            None => (Some(Pair::start(common, folder).await?), postgresql(common).await?),
        };
        let urls = cluster.or_else(|| pair.as_ref().map(Pair::urls)).unwrap_or_default();
        let gates = (0..GATES).map(|number| resource(number, Place::Servers(urls.clone())));
        let address = postgresql.as_ref().map(|server| server.address("app"));
        let table = address.map(|address| resource(IN_POSTGRESQL, Place::PostgreSql(address)));
        Ok(Self {
            resources: gates.chain(table).collect(),
            pair: pair.map(Mutex::new),
            postgresql: postgresql.map(Mutex::new),
            landed: Landed::default(),
            trials: Trials::default(),
        })
    }
}

fn resource(number: u32, place: Place) -> Resource {
    Resource { number, key: key_name(number), place }
}

/// Starts PostgreSQL, if it is installed.
async fn postgresql(common: &Common) -> Result<Option<PostgreSql>, String> {
    let Some(programs) = postgresql::programs() else { return Ok(None) };
    let lock = name(&key_name(IN_POSTGRESQL), "lock");
    PostgreSql::make(programs, &common.logs, &lock).await.map(Some).map_err(|why| format!("PostgreSQL: {why}"))
}
