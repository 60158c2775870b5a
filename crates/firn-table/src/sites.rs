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
    /// Fence after a new write buffer directory. Without it the root may name stale lines.
    PM_BUFFER_CREATE_FENCE = "pm_buffer.create.fence";
    /// Flush of the two committed words. Without it an acknowledged write may be lost.
    PM_BUFFER_COMMIT_FLUSH = "pm_buffer.commit.flush";
    /// Fence after them, for the same reason.
    PM_BUFFER_COMMIT_FENCE = "pm_buffer.commit.fence";
    /// Flush of a line of the directory before its id. Without it an id may stand in a line that
    /// names no buffer.
    PM_BUFFER_LINE_FLUSH = "pm_buffer.line.flush";
    /// Fence between the two, for the same reason.
    PM_BUFFER_LINE_FENCE = "pm_buffer.line.fence";
    /// Flush of a line's id. Without it a buffer with committed entries may be lost.
    PM_BUFFER_NAME_FLUSH = "pm_buffer.name.flush";
    /// Fence after it, for the same reason.
    PM_BUFFER_NAME_FENCE = "pm_buffer.name.fence";
    /// Flush of the noted numbers of buffers. Without it a greater number may lie below a noted
    /// end, where it is not looked for.
    PM_BUFFER_THROUGH_FLUSH = "pm_buffer.through.flush";
    /// Fence between them and the noted ends, for the same reason.
    PM_BUFFER_THROUGH_FENCE = "pm_buffer.through.fence";
    /// Flush of the noted ends. Without it entries behind a final end may come alive.
    PM_BUFFER_END_FLUSH = "pm_buffer.end.flush";
    /// Fence after them, for the same reason.
    PM_BUFFER_END_FENCE = "pm_buffer.end.fence";
    /// Flush of the ids of removed lines. Without it a line may name space that was reused.
    PM_BUFFER_REMOVE_FLUSH = "pm_buffer.remove.flush";
    /// Fence after them, for the same reason.
    PM_BUFFER_REMOVE_FENCE = "pm_buffer.remove.fence";
    /// Check of a word of the directory. Without it a rotten committed number is believed.
    PM_BUFFER_WORD_CHECK = "pm_buffer.word.check";
    /// Check of a line of the directory. Without it a buffer is looked for in a wrong place.
    PM_BUFFER_LINE_CHECK = "pm_buffer.line.check";
    /// Check of an entry's header and key. Without it the bytes of a former buffer come alive.
    PM_BUFFER_ENTRY_CHECK = "pm_buffer.entry.check";
    /// Check of a value. Without it damaged values are returned.
    PM_BUFFER_VALUE_CHECK = "pm_buffer.value.check";
}
