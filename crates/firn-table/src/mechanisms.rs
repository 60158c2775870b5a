//! The mechanisms of the designs, named after the rows of their tables. Switching one off loses no
//! data, but the test that shows the mechanism must then fail.

firn_base::sites! {
    /// Both bounds of a block exclude keys (block_01).
    BLOCK_BOUNDS = "block.bounds";
    /// An append begins after the remains of all earlier ones (block_10).
    BLOCK_BEHIND = "block.behind";
    /// An entry of a leaf omits the prefix that its key shares with the previous one (lab_02).
    LAB_PREFIX = "lab.prefix";
}
