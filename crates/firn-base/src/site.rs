//! Sites: the places where something is made durable, ordered or checked. Each flush, fence, sync,
//! rename and checksum has one. [`sites!`](crate::sites) declares it in its crate's `sites.rs`,
//! with its purpose.
//!
//! With the feature `proof`, which only `firn-sim` and `fuzz` enable, a test can switch a site off
//! and see that a suite notices, count how often sites are passed, or end the process at one.
//! Without it [`Site::is_on`] is `true` at compile time and a site is only a name.

#[cfg(feature = "proof")]
mod switch;

#[cfg(feature = "proof")]
pub use switch::{counted, die_at, off, without};

/// One site. Two sites are the same if they are the same `static`.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
}

/// A site for tests that are not about sites.
pub static TEST: Site = Site::new("test");

impl Site {
    /// A site named `name`. Names are unique and go from the general to the specific, separated by
    /// dots.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// The name used in tests and documents.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// True if the operation of this site is to be done: always, unless a test switched it off.
    #[inline(always)]
    pub fn is_on(&'static self) -> bool {
        #[cfg(feature = "proof")]
        return switch::pass(self);
        #[cfg(not(feature = "proof"))]
        true
    }
}

/// Declares a crate's sites and `ALL`, the list of them.
#[macro_export]
macro_rules! sites {
    ($($(#[doc = $doc:literal])+ $id:ident = $name:literal;)+) => {
        $($(#[doc = $doc])+ pub static $id: $crate::site::Site = $crate::site::Site::new($name);)+

        /// All sites of this crate.
        pub static ALL: &[&$crate::site::Site] = &[$(&$id),+];
    };
}
