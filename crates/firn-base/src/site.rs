//! Sites: the places where something is made durable, put in order or checked. Each flush, fence, sync, rename and
//! checksum has one, declared with [`sites!`](crate::sites) in its crate's `sites.rs` beside what it is for.
//!
//! With the feature `proof`, which only `firn-sim` and `fuzz` ask for, a test can switch a site off and see that a
//! suite notices, count how often sites are passed, or end the process at one. Without it [`Site::is_on`] is `true` at
//! compile time and a site is only a name.

#[cfg(feature = "proof")]
mod switch;

#[cfg(feature = "proof")]
pub use switch::{counted, die_at, without};

/// One place. Two are the same if they are the same `static`.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
}

/// For tests that are not about sites.
pub static TEST: Site = Site::new("test");

impl Site {
    /// A site; `name` is unique, with dots from the large to the small.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// What tests and documents call it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether what this site stands for is to be done: always, but in a test that switched it off.
    #[inline(always)]
    pub fn is_on(&'static self) -> bool {
        #[cfg(feature = "proof")]
        return switch::pass(self);
        #[cfg(not(feature = "proof"))]
        true
    }
}

/// Declares a crate's sites and the list `ALL` of them.
#[macro_export]
macro_rules! sites {
    ($($(#[doc = $doc:literal])+ $id:ident = $name:literal;)+) => {
        $($(#[doc = $doc])+ pub static $id: $crate::site::Site = $crate::site::Site::new($name);)+

        /// All of them.
        pub static ALL: &[&$crate::site::Site] = &[$(&$id),+];
    };
}
