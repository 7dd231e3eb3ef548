//! The addresses of the nodes, from the command line or the environment.

/// Returns the addresses of the nodes. If there are none, prints how to give them and ends the process.
pub fn of_nodes() -> Vec<String> {
    let mut nodes: Vec<String> = std::env::args().skip(1).collect();
    if nodes.is_empty() {
        let list = std::env::var("PALISADE_NODES").unwrap_or_default();
        nodes = list.split(',').map(str::trim).filter(|node| !node.is_empty()).map(str::to_owned).collect();
    }
    if nodes.is_empty() {
        let example = env!("CARGO_CRATE_NAME");
        eprintln!("usage: {example} redis://HOST:PORT …, or the same in PALISADE_NODES, separated by commas");
        std::process::exit(2);
    }
    nodes
}
