//! What a node keeps on the disk over its incarnations, and what must be there before it promises anything.
//!
//! [`incarnation`] has the state written by [`state_writer`], whose thread replaces the [`state_file`]; [`data_stamp`],
//! [`aof_folder`] and [`file_id`] tie that file to the server's data. [`start`] judges what the last incarnation left,
//! [`readiness`] refuses promises until that is done and on the disk. [`settings`] notices what ends the proof by the AOF,
//! [`promotion`] what a replica needs to be promoted, [`dropped_locks`] locks that went while they were held, [`operator`] what
//! an operator says about guard and tokens, [`members`] what whoever changes the set of nodes says. [`tick`] looks after all of it.

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
