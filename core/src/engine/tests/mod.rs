//! Tests of what happens to one key and its queue, from any cause.

mod bounds;
mod due_work;
mod grant_events;
mod heard;
mod history;
mod keeping_alive;
mod not_now;
mod passing_on;
mod slot_comes_back;
mod slot_moves;
mod turns;
mod watchers;
