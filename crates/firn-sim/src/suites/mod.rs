//! The suites of the whole engine, one file each.

pub(crate) mod copies;
pub(crate) mod damage;
pub(crate) mod io;
pub(crate) mod joint;
pub(crate) mod kill9;
pub(crate) mod media;
pub(crate) mod metamorphic;
pub(crate) mod model;
pub(crate) mod recovery;
pub(crate) mod start;
