//! What a cursor walks over on its way to a live key.

use crate::commit::Commit;
use crate::gaps::{Gap, REPORT_MIN, behind};
use firn_base::SeqNo;
use std::borrow::Cow;

/// The keys passed so far, none of them live at `seqno`: from `from` up to `to`, as far as each is known yet.
pub(super) struct Walk<'a> {
    seqno: SeqNo,
    from: Option<Cow<'a, [u8]>>,
    /// `Some(None)` is the end of all keys.
    to: Option<Option<Cow<'a, [u8]>>>,
    /// Deleted keys that were looked at, and those in gaps that were passed.
    steps: u64,
    passed: u64,
}

impl<'a> Walk<'a> {
    /// One from where the cursor is.
    pub(super) fn at(seqno: SeqNo) -> Walk<'a> {
        Walk { seqno, from: None, to: None, steps: 0, passed: 0 }
    }

    /// One forward from `key`.
    pub(super) fn forward(seqno: SeqNo, key: &'a [u8]) -> Walk<'a> {
        Walk { from: Some(Cow::Borrowed(key)), ..Walk::at(seqno) }
    }

    /// One backward from `border`, or from the end of all keys.
    pub(super) fn backward(seqno: SeqNo, border: Option<&'a [u8]>) -> Walk<'a> {
        Walk { to: Some(border.map(Cow::Borrowed)), ..Walk::at(seqno) }
    }

    /// It looks at a deleted key. The first one is its border if it had none.
    pub(super) fn step_forward(&mut self, key: &[u8]) {
        self.steps += 1;
        self.from.get_or_insert_with(|| Cow::Owned(key.to_vec()));
    }

    /// As [`Walk::step_forward`], on the way back.
    pub(super) fn step_backward(&mut self, key: &[u8]) {
        self.steps += 1;
        self.to.get_or_insert_with(|| Some(Cow::Owned(behind(key))));
    }

    /// It goes past a gap.
    pub(super) fn pass(&mut self, gap: &Gap) {
        self.passed += gap.dead;
        self.from.get_or_insert_with(|| Cow::Owned(gap.from.clone()));
        self.to.get_or_insert_with(|| gap.to.clone().map(Cow::Owned));
    }

    /// It went forward to `key`, or to the end of all keys.
    pub(super) fn end_at(self, key: Option<&[u8]>, commit: &Commit) {
        if self.steps >= REPORT_MIN
            && let Some(from) = self.from
        {
            let (to, dead) = (key.map(<[u8]>::to_vec), self.steps + self.passed);
            commit.report(Gap { from: from.into_owned(), to, since: self.seqno, dead });
        }
    }

    /// It went backward to the key in front of `from`.
    pub(super) fn begin_at(self, from: Vec<u8>, commit: &Commit) {
        if self.steps >= REPORT_MIN
            && let Some(to) = self.to
        {
            let (to, dead) = (to.map(Cow::into_owned), self.steps + self.passed);
            commit.report(Gap { from, to, since: self.seqno, dead });
        }
    }
}
