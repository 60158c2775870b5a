//! The sites of this crate, each with the failure that it prevents.

firn_base::sites! {
    /// Sync of a finished table. Without it the manifest may name an incomplete table.
    SST_SYNC = "sst.sync";
    /// Sync after an append to a table. Without it the manifest may name a footer that does not
    /// exist.
    SST_APPEND_SYNC = "sst.append.sync";
    /// The wait for writes in flight before the sync that is to cover them. Without it the manifest
    /// may name an incomplete table.
    SST_WRITES_WAIT = "sst.writes.wait";
    /// Check of the footer. Without it sections are read from wrong offsets.
    SST_FOOTER_CHECK = "sst.footer.check";
    /// Check of filter, index and properties. Without it keys are silently missed.
    SST_SECTION_CHECK = "sst.section.check";
    /// Check of a data block. Without it damaged values are returned.
    SST_BLOCK_CHECK = "sst.block.check";
    /// Fence after zeroing the directory of new trees. Without it stale words are taken for leaves.
    BTREE_CREATE_FENCE = "btree.create.fence";
    /// Fence between leaves and their words. Without it a word may name a leaf that does not exist.
    BTREE_LEAF_FENCE = "btree.leaf.fence";
    /// Flush of a word of the directory. Without it an acknowledged insertion may be lost.
    BTREE_WORD_FLUSH = "btree.word.flush";
    /// Fence after words of the directory, for the same reason. It also orders the words of a leaf
    /// that is split, and makes the removal of a word durable before its leaf's space is reused.
    BTREE_WORD_FENCE = "btree.word.fence";
    /// Check of a leaf. Without it damaged keys and addresses are believed.
    BTREE_LEAF_CHECK = "btree.leaf.check";
    /// Fence after entries, segments and filters of a list. Without it a segment may be followed by
    /// bytes that do not exist.
    LIST_FENCE = "list.fence";
    /// Flush of the word by which a segment names the next one, or ends its list. Without it a list
    /// that the manifest names may have no end.
    LIST_NEXT_FLUSH = "list.next.flush";
    /// Fence after that word, for the same reason.
    LIST_NEXT_FENCE = "list.next.fence";
    /// Check of a segment. Without it damaged nodes are followed.
    LIST_SEGMENT_CHECK = "list.segment.check";
    /// Check of an entry. Without it damaged values are returned.
    LIST_ENTRY_CHECK = "list.entry.check";
    /// Fence after the bytes of a table in persistent memory. Without it the manifest may name a
    /// table that does not exist.
    PM_TABLE_FENCE = "pm_table.fence";
    /// Check of such a table's header. Without it another table's bytes are taken for it.
    PM_TABLE_HEADER_CHECK = "pm_table.header.check";
    /// Check of what is searched in such a table. Without it keys are silently missed.
    PM_TABLE_SEARCH_CHECK = "pm_table.search.check";
    /// Check of a group of entries. Without it damaged keys are believed.
    PM_TABLE_GROUP_CHECK = "pm_table.group.check";
    /// Check of a value. Without it damaged values are returned.
    PM_TABLE_VALUE_CHECK = "pm_table.value.check";
    /// Fence after the bytes of a tree of blocks, and after its header. Without it the manifest may
    /// name a tree that does not exist.
    IF_TREE_FENCE = "if_tree.fence";
    /// Check of such a tree's header. Without it another tree's bytes are taken for it.
    IF_TREE_HEADER_CHECK = "if_tree.header.check";
    /// Check of its files and its prefix. Without it blocks are read from wrong files.
    IF_TREE_FILES_CHECK = "if_tree.files.check";
    /// Check of a group of nodes or entries, or of a filter. Without it keys are silently missed.
    IF_TREE_GROUP_CHECK = "if_tree.group.check";
}
