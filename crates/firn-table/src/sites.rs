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
}
