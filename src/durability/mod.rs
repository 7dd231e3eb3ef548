//! The node's memory on the disk across its incarnations, and what must be there before it promises anything.
//!
//! [`incarnation`] decides when the state is written. The thread of [`state_writer`] does it, and replaces the
//! [`state_file`]. [`data_stamp`], [`aof_folder`] and [`file_id`] tie that file to the server's data. [`start`] judges
//! the last incarnation's state; [`readiness`] refuses promises until that is done and on the disk. [`settings`]
//! notices settings that end the proof by the AOF. [`promotion`] tells replicas what they need to be promoted.
//! [`dropped_locks`] handles locks that vanish while they are held. [`operator`] has an operator's commands about guard
//! and tokens, and [`members`] the votes on changes of the set of nodes. [`tick`] runs all of it ten times a second.

pub mod aof_folder;
pub mod data_stamp;
pub mod dropped_locks;
pub mod file_id;
pub mod incarnation;
pub mod members;
pub mod operator;
pub mod promotion;
pub mod readiness;
pub mod settings;
pub mod start;
pub mod state_file;
pub mod state_writer;
pub mod tick;
