//! `LOCK.CEILING ceiling owed-max-ttl [STRIPES ceilings]`. A master sends it to its replicas, which need the values if
//! they are promoted. It is never in the AOF.

use palisade_core::grammar::{self, Argument, Shape};
use palisade_core::{Refusal, parse_integer, stripes_from_text};

use crate::command_names;
use crate::durability::promotion;
use crate::ffi::{AclGroup, Call, Command, Reply, Spec};

/// LOCK.CEILING: the master's ceilings of tokens, and its longest lease that may still run.
pub struct Ceiling;

impl Command for Ceiling {
    const SPEC: Spec = Spec::new(
        grammar::Spec {
            name: command_names::text(command_names::CEILING),
            summary: "Internal: carries a master's ceiling of tokens and its longest lease to replicas. Refused from clients.",
            flags: "write fast",
            key: None,
            arguments: &[
                Argument { name: "ceiling", option: None, shape: Shape::Integer },
                Argument { name: "owed-max-ttl", option: None, shape: Shape::Integer },
                Argument {
                    name: "ceilings",
                    option: Some(command_names::text(command_names::STRIPES)),
                    shape: Shape::Bytes,
                },
            ],
        },
        AclGroup::Operator,
        "0.1.0",
        "O(1)",
    );

    fn run(call: &Call<'_>) -> Result<Reply, Refusal> {
        if !call.ctx.is_from_master() && !call.ctx.is_from_aof() {
            return Err(Refusal::Internal);
        }
        // Words that this version does not know are ignored, unlike a client's: a newer master may add some.
        let number = |n| call.words().nth(n).and_then(parse_integer);
        if let (Some(ceiling), Some(outstanding_ttl_ms)) = (number(0), number(1)) {
            let stripes = call.words().nth(3).and_then(|text| stripes_from_text(std::str::from_utf8(text).ok()?));
            promotion::on_master_values(
                ceiling,
                u32::try_from(outstanding_ttl_ms).unwrap_or(u32::MAX),
                &stripes.unwrap_or_default(),
            );
        }
        Ok(Reply::Ok)
    }
}
