//! Runs a recipe with `palisade agent` and five nodes, two of which are killed meanwhile. The recipe is the same as for
//! a single node.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Server, Setup, free_port, int, wait_until};
use crate::running::output;
use crate::story::{OF_A_NODE, told_without};
use crate::{Recipe, build};

/// The number of nodes.
const NODES: usize = 5;

/// An agent that lives as long as this value.
struct Agent(Child);

impl Agent {
    fn start(nodes: &[Server], port: u16) -> Self {
        let program = std::env::var_os("PALISADE_PROGRAM")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/debug/palisade"), PathBuf::from);
        let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
        let agent = Command::new(&program)
            .args(["agent", "--listen", &format!("127.0.0.1:{port}"), "--nodes", &addresses.join(",")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("{}: {why}: cargo build --package palisade-cli", program.display()));
        wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the recipe, and kills two nodes once they have its first lock.
pub fn tells_its_story_over_five_nodes(recipe: &Recipe) {
    build(recipe.build);
    let nodes: Vec<Server> = (0..NODES).map(|_| Setup::new().start()).collect();
    let port = free_port();
    let _agent = Agent::start(&nodes, port);
    let printed = std::thread::scope(|scope| {
        let running = scope.spawn(|| output(recipe.run, port));
        for node in &nodes[..2] {
            let mut client = node.client();
            wait_until("it has the lock", || client.say("EXISTS orders:42") == int(1));
            node.signal(Signal::KILL);
        }
        running.join().unwrap()
    });
    let told = told_without(&OF_A_NODE, &printed);
    assert!(told.is_ok(), "{told:?}\n{printed}");
}
