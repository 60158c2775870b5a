//! The mechanisms of the designs, row by row of their tables: nothing is lost without one, but a test that shows the
//! mechanism must then fail.

firn_base::sites! {
    /// Both bounds of a block exclude keys (block_01).
    BLOCK_BOUNDS = "block.bounds";
    /// An append begins behind all that earlier ones left (block_10).
    BLOCK_BEHIND = "block.behind";
    /// An entry of a leaf has only what its key does not share with the one before (lab_02).
    LAB_PREFIX = "lab.prefix";
}
