//! The sites of this crate: what would go wrong without each.

firn_base::sites! {
    /// A finished table: else the manifest may name one that is not all there.
    SST_SYNC = "sst.sync";
    /// What was appended to a table: else the manifest may name a footer that is not there.
    SST_APPEND_SYNC = "sst.append.sync";
    /// The footer: else sections are looked for where they are not.
    SST_FOOTER_CHECK = "sst.footer.check";
    /// Filter, index and properties: else keys are missed, silently.
    SST_SECTION_CHECK = "sst.section.check";
    /// A data block: else damaged values are handed out.
    SST_BLOCK_CHECK = "sst.block.check";
    /// The directory of new trees, all zeros: else words that were there before are taken for leaves.
    BTREE_CREATE_FENCE = "btree.create.fence";
    /// Leaves before their words: else a word may name what is not there.
    BTREE_LEAF_FENCE = "btree.leaf.fence";
    /// A word of the directory: else an insertion that was acknowledged may be gone.
    BTREE_WORD_FLUSH = "btree.word.flush";
    /// The same; also orders the words of a leaf that was cut, and a word's end before its leaf's space is used again.
    BTREE_WORD_FENCE = "btree.word.fence";
    /// A leaf: else damaged keys and addresses are believed.
    BTREE_LEAF_CHECK = "btree.leaf.check";
}
