//! All parts of a campaign: nodes on their disks, client processes, the links between them, the register.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_client::Client;
use rustix::process::Signal;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::cluster::{self, Cluster};
use super::disk::Disk;
use super::faults::{Log, On};
use super::gated::Data;
use super::kinds::Kind;
use super::link::{Link, Mode, Target};
use super::machine::{Common, Durability, Machine, WallClock, kill, signal_to};
use super::register::Register;
pub use super::settings::NODES;
use super::settings::Settings;
use super::{agent, process};

/// The number of attempts to start a server before it is left down.
const STARTS: usize = 3;

/// The durability of each node at first.
const DURABILITIES: [Durability; NODES] =
    [Durability::AofAlways, Durability::Snapshots, Durability::AofAlways, Durability::Nothing, Durability::AofAlways];

/// The number of client processes.
pub const CLIENTS: usize = 4;

/// The number of keys that all clients want.
pub const CONTENDED_KEYS: u32 = 8;

/// A node: a server process (machine) behind its links. Another machine may replace it.
#[derive(Debug)]
pub struct Slot {
    /// The disk with the data of the node.
    pub disk: Disk,
    /// The machine. A task that kills or stops the process holds this mutex. If the process ends while no task holds
    /// it, the end is a finding.
    pub machine: tokio::sync::Mutex<Machine>,
    /// The server to which the links lead.
    pub target: Target,
    /// The port of the server that the slot began with. Connections to it bypass the links. A node of a cluster keeps
    /// that port.
    port: u16,
    /// The wall clock of the machine to which the links lead.
    clock: Mutex<WallClock>,
    /// Held while that clock must not be stepped: the server ends CLIENT PAUSE by it, and after a step back it would
    /// stay paused for hours.
    pub steady: tokio::sync::Mutex<()>,
}

impl Slot {
    /// Returns the socket of the machine to which the links lead.
    pub fn socket(&self) -> PathBuf {
        relock(&self.target).clone()
    }

    /// Returns the port of the server that the slot began with. Connections to it bypass the links. A node of a cluster
    /// keeps that port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the wall clock of the machine to which the links lead.
    pub fn clock(&self) -> WallClock {
        relock(&self.clock).clone()
    }

    /// Makes the links lead to `machine`.
    pub fn reach(&self, machine: &Machine) {
        *relock(&self.target) = machine.socket();
        *relock(&self.clock) = machine.clock.clone();
    }
}

/// A process of the campaign other than the servers.
#[derive(Debug)]
pub struct Process {
    /// The client or agent that this process is.
    pub on: On,
    child: Option<Child>,
    /// The wall clock that the process sees.
    pub clock: WallClock,
}

impl Process {
    /// Sends a signal to the process, if it runs.
    pub fn signal(&self, signal: Signal) {
        signal_to(self.child.as_ref(), signal);
    }

    /// Kills the process (kill -9).
    pub async fn kill(&mut self) {
        kill(&mut self.child).await;
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Asks the process to finish: to acquire the locks that it waits for, and to release all.
    pub fn finish(&mut self) {
        self.child.as_mut().map(|child| child.stdin.take());
    }
}

/// All parts of a campaign.
#[derive(Debug)]
pub struct World {
    /// The settings.
    pub settings: Settings,
    /// The settings that all servers of the campaign share.
    pub common: Common,
    /// The faults and findings.
    pub log: Log,
    /// The nodes.
    pub slots: Vec<Slot>,
    /// The links by client, then by node. A server of a cluster announces one address to all clients, so there is one
    /// row for all clients there.
    pub links: Vec<Vec<Link>>,
    /// The cluster, if the nodes are one.
    pub cluster: Option<Cluster>,
    /// The client processes, then the agents. One agent runs next to each client, and every client uses all agents. A
    /// cluster has no agents.
    pub processes: Vec<tokio::sync::Mutex<Process>>,
    /// The resource that the locks protect.
    pub register: Register,
    /// The resources that check tokens themselves.
    pub data: Data,
    /// The largest token of any holder so far.
    pub highest_token: AtomicU64,
    /// True during a storm, the period in which faults are injected.
    pub storm: AtomicBool,
    /// True once clocks may be stepped further than nodes tolerate. Disks are lost only before that.
    pub wild_clocks: AtomicBool,
    lives: Mutex<Vec<(usize, PathBuf)>>,
    machines_made: AtomicU32,
    folder: PathBuf,
}

impl World {
    /// Starts the server of node `node`.
    pub async fn start(&self, node: usize, machine: &mut Machine) {
        self.start_as(&format!("node {}", node + 1), machine).await;
    }

    /// Starts a server named `who`.
    pub async fn start_as(&self, who: &str, machine: &mut Machine) {
        for _ in 0..STARTS {
            match machine.start(&self.common, None).await {
                Ok(()) => return,
                Err(why) => {
                    self.log.found(format!("{who}: {why}"));
                    machine.kill().await;
                }
            }
        }
    }

    /// Creates the world and starts the servers on new disks. They are guarded at first.
    ///
    /// # Errors
    ///
    /// Something cannot be created.
    pub async fn make(settings: Settings, folder: &Path) -> Result<Arc<Self>, String> {
        let said = |what: &'static str| move |why: io::Error| format!("{what}: {why}");
        fs::create_dir_all(&settings.out).map_err(said("the folder for the report"))?;
        let logs = settings.out.join("logs");
        fs::create_dir_all(&logs).map_err(said("the folder for logs"))?;
        let common = Common {
            server: settings.server.clone(),
            module: settings.module.clone(),
            shim: compile_shim(folder)?,
            max_ttl_ms: settings.max_ttl_ms,
            skew_ms: settings.skew_ms,
            logs: logs.clone(),
        };
        let (mut disks, mut machines, mut targets): (Vec<Disk>, Vec<Machine>, Vec<Target>) = (vec![], vec![], vec![]);
        for (node, durability) in DURABILITIES.into_iter().cycle().take(settings.nodes()).enumerate() {
            let disk = Disk::new(folder.join(format!("n{}", node + 1))).map_err(said("a disk"))?;
            let name = format!("node-{}-machine-1", node + 1);
            let machine = Machine::new(&common, name, disk.path().join("1"), durability).map_err(said("a machine"))?;
            targets.push(Arc::new(Mutex::new(machine.socket())));
            machines.push(machine);
            disks.push(disk);
        }
        let mut links = vec![];
        for _ in 0..if settings.cluster { 1 } else { CLIENTS } {
            let mut row = vec![];
            for target in &targets {
                row.push(Link::to(Arc::clone(target)).await.map_err(said("a link"))?);
            }
            links.push(row);
        }
        let bus = match settings.cluster {
            true => Some(
                cluster::announce(&mut machines, &links[0], settings.brief).await.map_err(said("the cluster's bus"))?,
            ),
            false => None,
        };
        for machine in &mut machines {
            machine.start(&common, None).await?;
        }
        let cluster = match bus {
            Some(bus) => Some(Cluster::form(&machines, &links[0], bus).await?),
            None => None,
        };
        let places = disks.into_iter().zip(machines).zip(targets);
        let slots = places.map(|((disk, machine), target)| {
            let (port, clock) = (machine.port(), Mutex::new(machine.clock.clone()));
            Slot {
                disk,
                machine: tokio::sync::Mutex::new(machine),
                target,
                port,
                clock,
                steady: tokio::sync::Mutex::default(),
            }
        });
        let slots = slots.collect();
        let all = (0..CLIENTS).map(On::Client).chain((0..if settings.cluster { 0 } else { CLIENTS }).map(On::Agent));
        let mut processes = vec![];
        for on in all {
            let clock = WallClock::create(logs.join(format!("{}.clock", file_name(on)))).map_err(said("a clock"))?;
            processes.push(tokio::sync::Mutex::new(Process { on, child: None, clock }));
        }
        let register = Register::default();
        register.serve(&folder.join("register")).map_err(said("the register's socket"))?;
        let in_cluster = settings.cluster.then(|| links[0].iter().map(Link::address).collect());
        let data = Data::start(&common, folder, in_cluster).await?;
        let world = Arc::new(Self {
            settings,
            common,
            log: Log::default(),
            slots,
            links,
            cluster,
            processes,
            register,
            data,
            highest_token: AtomicU64::new(0),
            storm: AtomicBool::new(false),
            wild_clocks: AtomicBool::new(false),
            lives: Mutex::default(),
            machines_made: AtomicU32::new(NODES as u32),
            folder: folder.to_owned(),
        });
        // Clients depend on agents, so agents start first.
        for process in world.processes.iter().rev() {
            world.run(&mut *process.lock().await);
        }
        Ok(world)
    }

    /// Starts a process in place of the last one.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn run(&self, process: &mut Process) {
        let arguments = match process.on {
            On::Client(client) => ["client".to_owned(), json(&self.client_settings(client))],
            On::Agent(agent) => {
                let settings = agent::Settings { listen: self.agent_url(agent), nodes: self.addresses(agent) };
                ["agent".to_owned(), json(&settings)]
            }
            on => panic!("{on} is no process of this program"),
        };
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let errors = self.common.logs.join(format!("{}.log", file_name(process.on)));
        let errors = OpenOptions::new().create(true).append(true).open(errors).expect("a log can be made");
        process.clock.preload(&mut command, &self.common.shim);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).kill_on_drop(true);
        process.child = Some(command.spawn().expect("this program can be started again"));
    }

    /// Returns the settings for the next life of a client (a run of its process). Creates its journal, so that it can
    /// be read at once.
    fn client_settings(&self, client: usize) -> process::Settings {
        let mut lives = relock(&self.lives);
        let number = lives.len() as u32 + 1;
        let journal = self.settings.out.join(format!("client-{}-life-{number}.jsonl", client + 1));
        drop(OpenOptions::new().create(true).append(true).open(&journal).expect("a journal can be made"));
        lives.push((client, journal.clone()));
        process::Settings {
            number,
            seed: self.settings.seed.wrapping_add(number.into()),
            journal,
            register: self.folder.join("register"),
            nodes: self.addresses(client),
            cluster: self.settings.cluster,
            agents: (0..self.agents().len()).map(|agent| self.agent_url(agent)).collect(),
            resources: self.data.resources.clone(),
            contended_keys: CONTENDED_KEYS,
            own_key: CONTENDED_KEYS + client as u32,
            tasks: self.settings.tasks(),
            max_ttl_ms: self.settings.max_ttl_ms,
        }
    }

    /// Returns the client processes.
    pub fn clients(&self) -> &[tokio::sync::Mutex<Process>] {
        &self.processes[..CLIENTS]
    }

    /// Returns the agents.
    pub fn agents(&self) -> &[tokio::sync::Mutex<Process>] {
        &self.processes[CLIENTS..]
    }

    /// Returns a node's machine, unless another task acts on it. A machine that ended by itself is a finding, and is
    /// restarted.
    pub async fn take_machine(&self, node: usize) -> Option<tokio::sync::MutexGuard<'_, Machine>> {
        let mut machine = self.slots[node].machine.try_lock().ok()?;
        if let Some(status) = machine.ended() {
            self.log.found(format!("{} ended by itself with {status}: see its log", machine.name()));
            self.start(node, &mut machine).await;
        }
        Some(machine)
    }

    /// Stops the servers of these nodes until the returned value is dropped.
    pub async fn stop(&self, nodes: impl IntoIterator<Item = usize>) -> Stopped<'_> {
        let mut machines = vec![];
        for node in nodes {
            machines.push(self.slots[node].machine.lock().await);
        }
        machines.iter().for_each(|machine| machine.signal(Signal::STOP));
        Stopped(machines)
    }

    /// Returns the links through which a client reaches the nodes.
    pub fn links_of(&self, client: usize) -> &[Link] {
        &self.links[client % self.links.len()]
    }

    /// Returns a client in this process, which reaches the nodes as the client processes do.
    ///
    /// # Panics
    /// Never: the addresses are valid.
    pub fn client(&self) -> Client {
        connect(self.addresses(0), self.settings.cluster)
    }

    /// Returns the addresses at which a client, and the agent next to it, reach the nodes.
    pub fn addresses(&self, client: usize) -> Vec<String> {
        self.links_of(client).iter().map(Link::address).collect()
    }

    /// Returns the address on which an agent listens.
    pub fn agent_url(&self, agent: usize) -> String {
        format!("unix://{}", self.folder.join(format!("agent-{}", agent + 1)).display())
    }

    /// Returns the journals of all lives of client processes so far, from number `first` on.
    pub fn journals_from(&self, first: usize) -> Vec<PathBuf> {
        relock(&self.lives)[first..].iter().map(|(_, journal)| journal.clone()).collect()
    }

    /// Returns the client of each life (a run of a client process), from life 1 on.
    pub fn lives(&self) -> Vec<usize> {
        relock(&self.lives).iter().map(|&(client, _)| client).collect()
    }

    /// Creates a new machine for `node`, on an empty folder of its disk.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new_machine(&self, node: usize, durability: Durability) -> io::Result<Machine> {
        let number = self.machines_made.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("node-{}-machine-{number}", node + 1);
        Machine::new(&self.common, name, self.slots[node].disk.path().join(number.to_string()), durability)
    }

    /// Lets every link pass again.
    pub fn heal_links(&self) {
        for link in self.links.iter().flatten() {
            link.set(Mode::Pass);
            link.delay(std::time::Duration::ZERO);
        }
    }

    /// Returns true if clocks may be stepped further than nodes tolerate.
    pub fn is_wild(&self) -> bool {
        self.wild_clocks.load(Ordering::Relaxed)
    }

    /// Returns true if this fault is part of the campaign.
    pub fn does(&self, kind: Kind) -> bool {
        self.settings.does(kind)
    }

    /// Returns true during a storm, the period in which faults are injected.
    pub fn storms(&self) -> bool {
        self.storm.load(Ordering::Relaxed)
    }
}

/// Servers that are stopped until this value is dropped.
pub struct Stopped<'a>(Vec<tokio::sync::MutexGuard<'a, Machine>>);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|machine| machine.signal(Signal::CONT));
    }
}

/// Returns the name of the files about a process.
fn file_name(on: On) -> String {
    on.to_string().replace(' ', "-")
}

fn json(settings: &impl Serialize) -> String {
    serde_json::to_string(settings).expect("plain data")
}

/// Returns a client of nodes at these addresses.
///
/// # Panics
/// An address is invalid.
pub fn connect(addresses: Vec<String>, cluster: bool) -> Client {
    let client = match cluster {
        true => Client::builder().cluster(addresses.iter().map(|address| address.replace("redis://", ""))).build(),
        false => Client::new(addresses),
    };
    client.expect("the addresses are good")
}

fn compile_shim(folder: &Path) -> Result<PathBuf, String> {
    let (source, shim) = (folder.join("wall_clock.c"), folder.join("wall_clock.so"));
    fs::write(&source, include_str!("../../../tests/harness/wall_clock.c")).map_err(|why| why.to_string())?;
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source);
    match compiler.status() {
        Ok(status) if status.success() => Ok(shim),
        _ => Err("a C compiler is needed, for the shim that steps wall clocks".to_owned()),
    }
}

fn relock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
