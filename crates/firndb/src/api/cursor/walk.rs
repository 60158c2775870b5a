//! The deleted keys that a cursor passes on its way to a live key.

use crate::read::gaps::{Gap, REPORT_MIN, behind};
use crate::write::commit::Commit;
use firn_base::SeqNo;
use std::borrow::Cow;

/// The range of the keys passed so far, none of them live at `seqno`: from `from` up to `to`, as
/// far as each is known yet.
pub(super) struct Walk<'a> {
    seqno: SeqNo,
    from: Option<Cow<'a, [u8]>>,
    /// `Some(None)` is the end of all keys.
    to: Option<Option<Cow<'a, [u8]>>>,
    /// Deleted keys that were read one by one, and those in gaps that were skipped.
    steps: u64,
    passed: u64,
}

impl<'a> Walk<'a> {
    /// A walk forward from `start`, or from the first deleted key that it meets.
    pub(super) fn forward(seqno: SeqNo, start: Option<&'a [u8]>) -> Walk<'a> {
        Walk {
            seqno,
            from: start.map(Cow::Borrowed),
            to: None,
            steps: 0,
            passed: 0,
        }
    }

    /// A walk backward from `start`, which may be the end of all keys, or from the first deleted
    /// key that it meets.
    pub(super) fn backward(seqno: SeqNo, start: Option<Option<&'a [u8]>>) -> Walk<'a> {
        let to = start.map(|border| border.map(Cow::Borrowed));
        Walk {
            seqno,
            from: None,
            to,
            steps: 0,
            passed: 0,
        }
    }

    /// Counts a deleted key. The first one is the walk's border if it had none.
    pub(super) fn step_forward(&mut self, key: &[u8]) {
        self.steps += 1;
        self.from.get_or_insert_with(|| Cow::Owned(key.to_vec()));
    }

    /// As [`Walk::step_forward`], for a walk backward.
    pub(super) fn step_backward(&mut self, key: &[u8]) {
        self.steps += 1;
        self.to.get_or_insert_with(|| Some(Cow::Owned(behind(key))));
    }

    /// Skips a gap.
    pub(super) fn pass(&mut self, gap: &Gap) {
        self.passed += gap.dead;
        self.from
            .get_or_insert_with(|| Cow::Owned(gap.from.clone()));
        self.to
            .get_or_insert_with(|| gap.to.clone().map(Cow::Owned));
    }

    /// Ends a walk forward at `key`, or at the end of all keys, and reports it.
    #[inline]
    pub(super) fn end_at(walk: Option<Walk<'a>>, key: Option<&[u8]>, commit: &Commit) {
        if let Some(walk) = walk {
            walk.report(walk.from.as_deref(), Some(key), commit);
        }
    }

    /// Ends a walk backward, whose range begins at `from`, and reports it.
    #[inline]
    pub(super) fn begin_at(
        walk: Option<Walk<'a>>,
        from: impl FnOnce() -> Vec<u8>,
        commit: &Commit,
    ) {
        if let Some(walk) = walk {
            let to = walk.to.as_ref().map(|to| to.as_deref());
            walk.report(Some(&from()), to, commit);
        }
    }

    #[cold]
    fn report(&self, from: Option<&[u8]>, to: Option<Option<&[u8]>>, commit: &Commit) {
        if let (Some(from), Some(to)) = (from, to)
            && self.steps >= REPORT_MIN
        {
            let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
            commit.report(Gap {
                from,
                to,
                since: self.seqno,
                dead: self.steps + self.passed,
            });
        }
    }
}
