//! Three etcd nodes, and a client of them: the election service of the v3 API over gRPC.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::process::{Servers, free_port};
use super::turns::Done;

/// The number of nodes of a cluster: the least that etcd's documentation recommends.
const NODES: usize = 3;

/// The length of a lease, in seconds: longer than any measurement, so that no keep-alives are needed.
const LEASE_S: i64 = 600;

/// A cluster on the loopback, with etcd's defaults.
pub struct Etcd {
    nodes: Servers,
    clients: Vec<u16>,
    _dir: TempDir,
}

impl Etcd {
    /// Starts a cluster that keeps its data under `folder`, and waits until it has a leader.
    pub async fn start(program: &Path, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let dir = tempfile::tempdir_in(folder).unwrap();
        let clients: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let peers: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = peers.iter().enumerate().map(|(n, &port)| format!("n{n}={}", url(port))).collect();
        let nodes = (0..NODES).map(|n| {
            Command::new(program)
                .args(["--name", &format!("n{n}")])
                .arg("--data-dir")
                .arg(dir.path().join(n.to_string()))
                .args(["--listen-client-urls", &url(clients[n]), "--advertise-client-urls", &url(clients[n])])
                .args(["--listen-peer-urls", &url(peers[n]), "--initial-advertise-peer-urls", &url(peers[n])])
                .args(["--initial-cluster", &cluster.join(","), "--logger", "zap", "--log-level", "fatal"])
                // Before version 3.5, etcd starts on ARM only with this variable.
                .env("ETCD_UNSUPPORTED_ARCH", "arm64")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|why| panic!("{} cannot be started: {why}; see make setup-peers", program.display()))
        });
        let etcd = Self { nodes: nodes.collect(), clients, _dir: dir };
        etcd.leader().await;
        etcd
    }

    /// Returns the leading node, once the nodes know it.
    pub async fn leader(&self) -> usize {
        for _ in 0..300 {
            if let Some(leader) = self.known_leader().await {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the etcd nodes did not find a leader");
    }

    async fn known_leader(&self) -> Option<usize> {
        for (n, &port) in self.clients.iter().enumerate() {
            let mut client = Client::to(&[port]).await.ok()?;
            let status = client.status().await.ok()?;
            if status.leader != 0 && status.leader == status.header?.member_id {
                return Some(n);
            }
        }
        None
    }

    /// Returns the ports on which the cluster's nodes serve clients.
    pub fn ports(&self) -> Vec<u16> {
        self.clients.clone()
    }

    /// Returns a client of all nodes.
    pub async fn client(&self) -> Client {
        Client::to(&self.clients).await.unwrap()
    }

    /// Freezes a node that does not lead, or continues all nodes.
    pub async fn freeze_follower(&self, frozen: bool) {
        match frozen {
            true => {
                let leader = self.leader().await;
                self.nodes.freeze((leader + 1) % NODES);
            }
            false => self.nodes.go_on(),
        }
    }

    /// Returns the CPU time of all nodes so far.
    pub fn cpu(&self) -> Duration {
        self.nodes.cpu()
    }

    /// Returns the counters of all nodes so far.
    pub async fn done(&self) -> Done {
        let mut done = Done::default();
        for &port in &self.clients {
            let metrics = metrics(port).await;
            let sum = |name: &str| -> f64 {
                let of = |line: &str| line.strip_prefix(name)?.rsplit(' ').next()?.parse::<f64>().ok();
                metrics.lines().filter_map(of).sum()
            };
            done.requests += sum("grpc_server_started_total{");
            *done.bytes.get_or_insert_default() += sum("etcd_network_client_grpc_received_bytes_total ")
                + sum("etcd_network_client_grpc_sent_bytes_total ")
                + sum("etcd_network_peer_sent_bytes_total{");
            done.fsyncs += sum("etcd_disk_wal_fsync_duration_seconds_count ");
        }
        done
    }
}

/// Returns the metrics of the node on `port`.
async fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// A gRPC client. Its clones use the same connections.
#[derive(Clone)]
pub struct Client {
    channel: Grpc<Channel>,
}

impl Client {
    /// Connects to the nodes on these ports.
    pub async fn to(ports: &[u16]) -> Result<Self, tonic::transport::Error> {
        let endpoint = |&port: &u16| Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a good address");
        let channel = match ports {
            // Connects at once, to find out whether the node is reachable: a cluster may still be starting.
            [port] => endpoint(port).connect().await?,
            // Requests go to the ready nodes in turn, as with the crate etcd-client.
            ports => Channel::balance_list(ports.iter().map(endpoint)),
        };
        Ok(Self { channel: Grpc::new(channel) })
    }

    /// Opens a session: the lease under which a candidate leads.
    pub async fn session(&mut self) -> Result<i64, Status> {
        self.session_of(LEASE_S).await
    }

    /// Opens a session of `ttl` seconds.
    pub async fn session_of(&mut self, ttl: i64) -> Result<i64, Status> {
        let request = LeaseGrantRequest { ttl, id: 0 };
        Ok(self.call::<_, LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", request).await?.id)
    }

    /// Renews the lease of a session.
    pub async fn keep_alive(&mut self, session: i64) -> Result<(), Status> {
        let mut answers: Streaming<KeepAliveResponse> =
            self.stream("/etcdserverpb.Lease/LeaseKeepAlive", KeepAliveRequest { id: session }).await?;
        answers.message().await.map(drop)
    }

    /// Waits until this client leads the election `name`.
    pub async fn campaign(&mut self, name: &str, session: i64, value: &[u8]) -> Result<Leader, Status> {
        let request = CampaignRequest { name: name.into(), lease: session, value: value.into() };
        let response: CampaignResponse = self.call("/v3electionpb.Election/Campaign", request).await?;
        response.leader.ok_or_else(|| Status::internal("who campaigned leads"))
    }

    /// Stops leading, which lets the next candidate lead.
    pub async fn resign(&mut self, leader: Leader) -> Result<(), Status> {
        let request = ResignRequest { leader: Some(leader) };
        self.call::<_, HeaderOnly>("/v3electionpb.Election/Resign", request).await.map(drop)
    }

    /// Observes the leaders of an election from now on.
    pub async fn observe(&mut self, name: &str) -> Result<Observer, Status> {
        self.stream("/v3electionpb.Election/Observe", LeaderRequest { name: name.into() }).await.map(Observer)
    }

    async fn stream<Q, A>(&mut self, path: &'static str, request: Q) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + Clone + Default + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.channel.ready().await.map_err(|why| Status::new(Code::Unavailable, why.to_string()))?;
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let requests = futures_util::stream::iter([request]);
        Ok(self.channel.streaming(Request::new(requests), path, ProstCodec::<Q, A>::default()).await?.into_inner())
    }

    async fn status(&mut self) -> Result<StatusResponse, Status> {
        self.call("/etcdserverpb.Maintenance/Status", Nothing {}).await
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + Default + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.channel.ready().await.map_err(|why| Status::new(Code::Unavailable, why.to_string()))?;
        let codec = ProstCodec::<Q, A>::default();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        Ok(self.channel.unary(Request::new(request), path, codec).await?.into_inner())
    }
}

/// An observer of leaders.
pub struct Observer(Streaming<LeaderResponse>);

impl Observer {
    /// Returns the moment at which the observer is notified that this candidate leads.
    pub async fn told(&mut self, value: &[u8]) -> Instant {
        while let Some(told) = self.0.message().await.unwrap() {
            if told.kv.is_some_and(|leader| leader.value == value) {
                break;
            }
        }
        Instant::now()
    }
}

// The messages of etcd's v3 API that are used here (api/etcdserverpb/rpc.proto, v3electionpb/v3election.proto,
// api/mvccpb/kv.proto).

#[derive(Clone, PartialEq, prost::Message)]
struct KeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeepAliveResponse {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CampaignRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CampaignResponse {
    #[prost(message, optional, tag = "2")]
    leader: Option<Leader>,
}

/// The leadership of an election, as etcd identifies it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leader {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    rev: i64,
    #[prost(int64, tag = "4")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResignRequest {
    #[prost(message, optional, tag = "1")]
    leader: Option<Leader>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaderRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaderResponse {
    #[prost(message, optional, tag = "2")]
    kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderOnly {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}
