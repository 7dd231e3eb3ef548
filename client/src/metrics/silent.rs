//! Stubs that count nothing: the feature `metrics` is off.

use std::time::Duration;

use palisade_quorum::Wanted;

use crate::{Error, Loss, Why};

#[derive(Clone, Debug, Default)]
pub struct Class(());

impl Class {
    pub fn round(&self) {}
}

pub struct Acquiring;

impl Acquiring {
    pub fn begin(_: &Class, _: Wanted) -> Self {
        Self
    }

    pub fn ended<T>(self, _: &Result<T, Error>) {}
}

pub struct Holding;

impl Holding {
    pub fn begin(_: &Class, _: Wanted) -> Self {
        Self
    }

    pub fn end(&mut self, _: &Loss) {}
}

#[derive(Debug)]
pub struct NodeMeter;

impl NodeMeter {
    pub fn new(_: &str) -> Self {
        Self
    }

    pub fn up(&self, _: bool) {}

    pub fn count_request<T>(&self, _: &Result<T, Why>) {}

    pub fn responded(&self, _: Duration) {}
}

pub fn describe() {}

pub fn extended(_: &Class, _: Wanted, _: bool) {}
