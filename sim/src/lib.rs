//! What shows that the locks keep their promises, for anybody to run again.
//!
//! Every layer records what holders did ([`history`]) and shows it to the same [`referee`].

pub mod campaign;
pub mod history;
pub mod referee;
