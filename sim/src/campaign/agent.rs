//! An agent of a campaign: runs `palisade agent` in a process of this program.

use palisade_agent::{Agent, Config, OnEnd};
use palisade_client::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// A limit above the number of connections of all clients.
const CONNECTIONS_MAX: usize = 256;

/// The settings of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The address to listen on.
    pub listen: String,
    /// The addresses of the nodes.
    pub nodes: Vec<String>,
}

/// Serves as an agent until this process is killed.
///
/// # Panics
///
/// If the agent cannot serve.
#[tokio::main(flavor = "current_thread")]
pub async fn run(settings: Settings) {
    let client = Client::new(&settings.nodes).expect("the addresses are good");
    let config = Config {
        listen: vec![settings.listen.parse().expect("a good address")],
        socket_mode: 0o600,
        password: None,
        metrics: None,
        http: None,
        on_end: OnEnd::Leave,
        connections_max: CONNECTIONS_MAX,
        tell: |text| eprintln!("{text}"),
    };
    let (tell, told) = oneshot::channel();
    let own = client.clone();
    let serving = async move {
        let agent = Agent::listen(config, own, vec![]).await.expect("it listens");
        let _ = tell.send(agent.run(std::future::pending()).await);
    };
    client.spawn(serving).expect("the client is open");
    let _ = told.await;
}
