//! The picker's inputs and outputs.
