//! How far bytes have come on their way to the medium: [`Dirty`], [`Flushed`], [`Fenced`].
//!
//! 1. Only the pool's verbs make tokens, and each verb consumes the one before: `store -> Dirty`, `flush(Dirty) ->
//!    Flushed`, `fence(Flushed..) -> Fenced`. So code that forgets a step does not compile, or drops a `must_use`.
//! 2. A token covers what was stored *before* it was made. A later store to the same bytes has a token of its own.
//! 3. [`Fenced`] is the right to [`crate::Pool::commit`], [`crate::Pool::publish`] and [`crate::Pool::freeze`].
//! 4. A fence orders the calling thread's stores only: a token is not `Send`, so it cannot be flushed here and fenced
//!    there. `Fenced` is `Send`: what is fenced is fenced for all.

use std::marker::PhantomData;

/// Stored, and not durable: a crash may keep it or not.
#[derive(Debug)]
#[must_use = "these bytes are in the cache only: flush them"]
pub struct Dirty {
    pub(crate) span: Span,
    pub(crate) _here: PhantomData<*const ()>,
}

/// Flushed, and on its way: durable at this thread's next fence.
#[derive(Debug)]
#[must_use = "flushed bytes are durable only after a fence"]
pub struct Flushed {
    pub(crate) span: Span,
    pub(crate) _here: PhantomData<*const ()>,
}

/// Behind a fence: on a backend that is durable at the fence, this is durable.
#[derive(Debug)]
#[must_use = "nothing reaches these bytes until they are committed or published"]
pub struct Fenced {
    pub(crate) span: Span,
}

/// What a token covers: the hull of the ranges it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) owner: u8,
    /// The pool it is of; 0 for no bytes at all.
    pub(crate) pool: u64,
}

impl Span {
    pub(crate) const NOTHING: Span = Span { start: 0, end: 0, owner: 0, pool: 0 };

    pub(crate) fn hull(self, other: Span) -> Span {
        if self.start == self.end {
            return other;
        }
        if other.start == other.end {
            return self;
        }
        Span { start: self.start.min(other.start), end: self.end.max(other.end), ..self }
    }
}

impl Dirty {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, _here: PhantomData }
    }
}

impl Flushed {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, _here: PhantomData }
    }

    /// The lowest and one past the highest byte covered.
    pub fn range(&self) -> (u64, u64) {
        (self.span.start, self.span.end)
    }
}

impl Fenced {
    /// For a commit that reaches nothing new.
    pub fn nothing() -> Fenced {
        Fenced { span: Span::NOTHING }
    }

    /// The lowest and one past the highest byte covered.
    pub fn range(&self) -> (u64, u64) {
        (self.span.start, self.span.end)
    }

    /// One token for both.
    pub fn and(self, other: Fenced) -> Fenced {
        Fenced { span: self.span.hull(other.span) }
    }
}

/// So that [`crate::Pool::fence`] takes one token as well as several.
impl IntoIterator for Flushed {
    type Item = Flushed;
    type IntoIter = std::iter::Once<Flushed>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}
