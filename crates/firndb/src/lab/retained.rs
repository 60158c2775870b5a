//! Retained versions: versions that were replaced in a tree while a snapshot sees them. They are in
//! DRAM only, because snapshots end with the process. An eviction moves the ones of its keys to
//! level 1, so many retained versions make an eviction due.

use crate::mechanisms;
use crate::read_points::is_seen;
use firn_base::key::compare;
use firn_base::{SeqNo, Tag};
use firn_table::pm_btree::ValueAddress;

/// A replaced version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) key: Box<[u8]>,
    pub(crate) tag: Tag,
    pub(crate) address: Option<ValueAddress>,
    /// The sequence number of the version that replaced it.
    pub(crate) until: SeqNo,
}

impl Version {
    /// True if one of `snapshots`, in ascending order, sees it.
    pub(crate) fn is_seen(&self, snapshots: &[SeqNo]) -> bool {
        is_seen(snapshots, self.tag.seqno(), self.until)
    }
}

/// The versions, by key and then newest first.
#[derive(Debug, Default)]
pub(crate) struct RetainedVersions {
    versions: Vec<Version>,
    bytes: u64,
}

impl RetainedVersions {
    fn of(versions: Vec<Version>) -> RetainedVersions {
        let bytes = versions
            .iter()
            .map(|version| (size_of::<Version>() + version.key.len()) as u64)
            .sum();
        RetainedVersions { versions, bytes }
    }

    /// Bytes of memory used.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The index of the first version at or after (key, tag).
    pub(crate) fn seek(&self, key: &[u8], tag: Tag) -> usize {
        self.versions
            .partition_point(|version| (&*version.key, tag) < (key, version.tag))
    }

    /// The newest version of `key` that is not above `seqno`.
    pub(crate) fn newest(&self, key: &[u8], seqno: SeqNo) -> Option<(Tag, Option<ValueAddress>)> {
        let version = self.versions.get(self.seek(key, Tag::seek(seqno)))?;
        (*version.key == *key).then_some((version.tag, version.address))
    }

    /// The versions of `key` that are older than `tag`.
    pub(crate) fn older(&self, key: &[u8], tag: Tag) -> &[Version] {
        let from = self
            .versions
            .partition_point(|v| (&*v.key, tag.seqno()) < (key, v.tag.seqno().max(tag.seqno())));
        let from = from
            + self.versions[from..]
                .iter()
                .take_while(|v| *v.key == *key && v.tag.seqno() >= tag.seqno())
                .count();
        let len = self.versions[from..]
            .iter()
            .take_while(|v| *v.key == *key)
            .count();
        &self.versions[from..from + len]
    }

    /// These versions without `gone`, which are in the same order. Also returns the removed ones.
    pub(crate) fn without(&self, gone: &[Version]) -> (RetainedVersions, Vec<Version>) {
        let order = |a: &Version, b: &Version| compare(&a.key, a.tag, &b.key, b.tag);
        let mut gone = gone.iter().peekable();
        let (removed, versions) = self.versions.iter().cloned().partition(|version| {
            while gone.next_if(|gone| order(gone, version).is_lt()).is_some() {}
            gone.next_if(|gone| *gone == version).is_some()
        });
        (RetainedVersions::of(versions), removed)
    }

    /// These versions with `added`, without those that none of `snapshots` sees. Also returns the
    /// latter.
    pub(crate) fn with(
        &self,
        added: Vec<Version>,
        snapshots: &[SeqNo],
    ) -> (RetainedVersions, Vec<Version>) {
        let all = self.versions.iter().cloned().chain(added);
        let (mut versions, gone): (Vec<Version>, Vec<Version>) = all
            .partition(|version| version.is_seen(snapshots) || !mechanisms::LAB_IN_PLACE.is_on());
        versions.sort_by(|a, b| compare(&a.key, a.tag, &b.key, b.tag));
        (RetainedVersions::of(versions), gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::key::Kind;

    fn version(key: &[u8], seqno: u64, until: u64) -> Version {
        Version {
            key: key.into(),
            tag: Tag::new(SeqNo(seqno), Kind::Delete),
            address: None,
            until: SeqNo(until),
        }
    }

    #[test]
    fn keeps_what_a_snapshot_sees_and_finds_the_newest() {
        let added = vec![
            version(b"b", 3, 9),
            version(b"a", 5, 7),
            version(b"b", 9, 12),
            version(b"b", 1, 3),
        ];
        let (retained, gone) =
            RetainedVersions::default().with(added, &[SeqNo(4), SeqNo(10), SeqNo(20)]);
        assert_eq!(gone, [version(b"a", 5, 7), version(b"b", 1, 3)]);
        let newest = |key: &[u8], at| {
            retained
                .newest(key, SeqNo(at))
                .map(|(tag, _)| tag.seqno().0)
        };
        assert_eq!(
            [
                newest(b"b", 4),
                newest(b"b", 8),
                newest(b"b", 9),
                newest(b"b", 99)
            ],
            [Some(3), Some(3), Some(9), Some(9)]
        );
        assert_eq!(
            [newest(b"b", 2), newest(b"a", 6), newest(b"c", 9)],
            [None; 3]
        );
        let (later, gone) = retained.with(Vec::new(), &[SeqNo(10)]);
        assert_eq!(
            (later.versions(), gone.len()),
            (&[version(b"b", 9, 12)][..], 1)
        );
    }

    #[test]
    fn gives_out_what_is_gone_and_was_there() {
        let all = vec![
            version(b"a", 5, 7),
            version(b"b", 9, 12),
            version(b"b", 3, 9),
            version(b"d", 1, 3),
        ];
        let (retained, _) =
            RetainedVersions::default().with(all.clone(), &[SeqNo(2), SeqNo(5), SeqNo(10)]);
        let gone = [
            version(b"a", 2, 3),
            all[1].clone(),
            version(b"c", 1, 9),
            all[3].clone(),
            version(b"e", 1, 2),
        ];
        let (left, removed) = retained.without(&gone);
        assert_eq!(
            (left.versions(), &removed[..]),
            (
                &[all[0].clone(), all[2].clone()][..],
                &[all[1].clone(), all[3].clone()][..]
            )
        );
        assert_eq!(retained.without(&[]).0.versions(), retained.versions());
    }
}
