//! The life of an order: which steps it goes through, in which order. Each step is one batch, and
//! its number, from 1 on, is the version of every row that the batch writes.

/// A step in the life of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Placed,
    Paid,
    Accepted,
    /// Optional.
    Packing,
    Packed,
    Assigned,
    PickedUp,
    /// The courier's place is reported; optional.
    Located,
    Delivered,
    /// Optional.
    Invoiced,
    Finished,
    /// Optional.
    Reviewed,
}

/// All steps, in the order in which they follow each other.
const ALL: [Step; 12] = [
    Step::Placed,
    Step::Paid,
    Step::Accepted,
    Step::Packing,
    Step::Packed,
    Step::Assigned,
    Step::PickedUp,
    Step::Located,
    Step::Delivered,
    Step::Invoiced,
    Step::Finished,
    Step::Reviewed,
];

/// The steps of one order: 8 that every order has, and each of the 4 others with even odds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    steps: [Step; ALL.len()],
    len: u8,
}

impl Life {
    /// The life for `chance`, whose lowest four bits choose the optional steps.
    pub(super) fn new(chance: u64) -> Self {
        let (mut life, mut optional) = (
            Self {
                steps: [Step::Placed; ALL.len()],
                len: 0,
            },
            0,
        );
        for step in ALL {
            let mut is_taken = true;
            if let Step::Packing | Step::Located | Step::Invoiced | Step::Reviewed = step {
                is_taken = chance >> optional & 1 == 1;
                optional += 1;
            }
            if is_taken {
                life.steps[usize::from(life.len)] = step;
                life.len += 1;
            }
        }
        life
    }

    /// The number of steps, which is the version of the last one.
    pub(super) fn len(&self) -> u8 {
        self.len
    }

    /// The step that writes `version`.
    ///
    /// REQUIRES: `version` is 1 to [`Life::len`].
    pub(super) fn step(&self, version: u8) -> Step {
        debug_assert!((1..=self.len).contains(&version));
        self.steps[usize::from(version - 1)]
    }
}
