//! The stages of bytes on their way to the medium: [`Dirty`], [`Flushed`], [`Fenced`].
//!
//! 1. Only the pool's verbs make tokens, and each verb consumes the previous one: `store -> Dirty`,
//!    `flush(Dirty) -> Flushed`, `fence(Flushed..) -> Fenced`. So code that forgets a step does not
//!    compile, or drops a `must_use`.
//! 2. A token covers bytes stored *before* it was made. A later store to the same bytes has its own
//!    token.
//! 3. [`Fenced`] is the permission for [`crate::Pool::commit`], [`crate::Pool::publish`] and
//!    [`crate::Pool::freeze`].
//! 4. A fence orders only the calling thread's stores. So `Dirty` and `Flushed` are not `Send`:
//!    bytes cannot be flushed on one thread and fenced on another. `Fenced` is `Send`, because
//!    fenced bytes are fenced for every thread.

use std::marker::PhantomData;

/// Stored but not durable: a crash may or may not keep it.
#[derive(Debug)]
#[must_use = "these bytes are in the cache only: flush them"]
pub struct Dirty {
    pub(crate) span: Span,
    pub(crate) _here: PhantomData<*const ()>,
}

/// Flushed but not yet durable: durable at this thread's next fence.
#[derive(Debug)]
#[must_use = "flushed bytes are durable only after a fence"]
pub struct Flushed {
    pub(crate) span: Span,
    pub(crate) _here: PhantomData<*const ()>,
}

/// Fenced. Durable on a backend that is durable at the fence.
#[derive(Debug)]
#[must_use = "nothing reaches these bytes until they are committed or published"]
pub struct Fenced {
    pub(crate) span: Span,
}

/// The bytes that a token covers: the hull of its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) owner: u8,
    /// The id of its pool; 0 if it covers no bytes.
    pub(crate) pool: u64,
}

impl Span {
    pub(crate) const NOTHING: Span = Span {
        start: 0,
        end: 0,
        owner: 0,
        pool: 0,
    };

    pub(crate) fn hull(self, other: Span) -> Span {
        if self.start == self.end {
            return other;
        }
        if other.start == other.end {
            return self;
        }
        Span {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            ..self
        }
    }
}

impl Dirty {
    pub(crate) fn new(span: Span) -> Self {
        Self {
            span,
            _here: PhantomData,
        }
    }
}

impl Flushed {
    pub(crate) fn new(span: Span) -> Self {
        Self {
            span,
            _here: PhantomData,
        }
    }

    /// The lowest and one past the highest byte covered.
    pub fn range(&self) -> (u64, u64) {
        (self.span.start, self.span.end)
    }
}

impl Fenced {
    /// A token for a commit that reaches nothing new.
    pub fn nothing() -> Fenced {
        Fenced {
            span: Span::NOTHING,
        }
    }

    /// The lowest and one past the highest byte covered.
    pub fn range(&self) -> (u64, u64) {
        (self.span.start, self.span.end)
    }

    /// Combines both tokens into one.
    pub fn and(self, other: Fenced) -> Fenced {
        Fenced {
            span: self.span.hull(other.span),
        }
    }
}

/// Lets [`crate::Pool::fence`] take one token as well as several.
impl IntoIterator for Flushed {
    type Item = Flushed;
    type IntoIter = std::iter::Once<Flushed>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}
