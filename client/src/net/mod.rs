//! Everything between the client's decisions and the nodes: connections, the bytes of commands, and which server a
//! request goes to.

pub mod access;
pub mod address;
pub mod admission;
pub mod bounds;
pub mod calls;
#[cfg(feature = "tls")]
pub mod certificates;
pub mod cluster;
pub mod debt;
pub mod endpoint;
pub mod following;
pub mod home;
pub mod lease;
pub mod line;
pub mod news;
pub mod node;
pub mod nodes;
pub mod pace;
pub mod place;
pub mod rest;
pub mod sentinels;
pub mod server;
pub mod stranger;
pub mod tally;
pub mod tracking;
pub mod ways;
pub mod wire;
