//! The sites of this crate: what would go wrong without each.

/// The mechanisms of the designs, row by row: nothing is lost without one, but a test that shows it must then fail.
pub mod rows {
    firn_base::sites! {
        /// Both bounds of a block exclude keys (block_01).
        BLOCK_BOUNDS = "block.bounds";
        /// An append begins behind all that earlier ones left (block_10).
        BLOCK_BEHIND = "block.behind";
    }
}

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
