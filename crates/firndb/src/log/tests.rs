//! The log: what was written comes back; a torn end is an end; damage before it is damage.
