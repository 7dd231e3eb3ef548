//! Tests of the module on real servers, with one file per property.
//!
//! `PALISADE_SERVER` names the server binary (default `redis-server`), `PALISADE_MODULE` the module (default: the one
//! built with these tests).

// Tests measure durations; the rule that only one file reads clocks is for the module.
#![allow(clippy::disallowed_methods)]

// Other test programs use the harness too, and use parts that this one does not.
#[allow(dead_code, unused_imports)]
mod harness;

mod access;
mod adoption;
mod arguments;
mod behind;
mod cluster;
mod cluster_of_three;
mod cluster_slots;
mod code_map;
mod command_pages;
mod commands;
mod configuration;
mod copied_data;
mod crashes;
mod defragmentation;
mod descriptions;
mod documented;
mod events;
mod expiry;
mod failures;
mod full_disk;
mod garbage;
mod gate;
mod gate_kept;
mod gate_storms;
mod guard;
mod hand_over;
mod heard;
mod hostile;
mod imports;
mod io_threads;
mod keepalive;
mod key_commands;
mod key_events;
mod leaving_the_queue;
mod loaded_again;
mod log;
mod members;
mod memory;
mod model;
mod modes_page;
mod monitoring;
mod notes;
mod other_modules;
mod permits;
mod persistence;
mod prefixes;
mod promotion;
mod propagation;
mod readme;
mod rename_command;
mod replication;
mod reservation;
mod resp3;
mod restore;
mod scripts;
mod sentinel;
mod shared;
mod shares;
mod starts;
mod state_file;
mod stored;
mod storms;
mod tls;
mod together_cluster;
mod together_endings;
mod together_many;
mod together_names;
mod together_persistence;
mod together_restore;
mod together_turns;
mod tokens;
mod told_and_remembered;
mod too_old;
mod top;
mod upgrades;
mod wall_clock;
mod watchers;
mod watching;
