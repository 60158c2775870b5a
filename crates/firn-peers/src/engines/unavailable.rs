//! An engine that this build lacks. It is known by name, so that opening it tells how to get it.

use firn_base::{Error, Result};
use firn_bench::{Engine, Setup, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A name, and the feature of this crate that adds the engine.
#[derive(Debug)]
pub(crate) struct Unavailable {
    name: &'static str,
    feature: &'static str,
}

impl Unavailable {
    pub(crate) fn boxed(name: &'static str, feature: &'static str) -> Box<dyn Engine> {
        Box::new(Self { name, feature })
    }
}

impl Engine for Unavailable {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn about(&self) -> String {
        let Self { name, feature } = self;
        format!(
            "{name} is not in this build: run `cargo xtask peers`, which builds crates/firn-peers with what it needs \
             (feature `{feature}`)"
        )
    }

    fn settings(&self, _setup: &Setup) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn open(&self, _setup: &Setup) -> Result<Arc<dyn Store>> {
        Err(Error::invalid(self.about()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_to_get_it() {
        let about = Unavailable::boxed("rocksdb-pm", "rocksdb").about();
        assert!(
            about.starts_with("rocksdb-pm is not in this build")
                && about.contains("cargo xtask peers"),
            "{about}"
        );
    }
}
