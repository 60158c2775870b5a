//! Levels, and things that there are once a level.

use std::fmt;
use std::ops::Index;

/// The number of a level: 0 collects flushed memtables, and each one below is one sorted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Level(pub(crate) usize);

impl Level {
    pub(crate) const ZERO: Level = Level(0);

    /// The next deeper level.
    pub(crate) fn below(self) -> Level {
        Level(self.0 + 1)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value for each level, from level 0 down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Levels<T>(Vec<T>);

impl<T> Default for Levels<T> {
    fn default() -> Self {
        Levels(Vec::new())
    }
}

impl<T> FromIterator<T> for Levels<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Levels(values.into_iter().collect())
    }
}

impl<T> Index<Level> for Levels<T> {
    type Output = T;

    #[inline]
    fn index(&self, level: Level) -> &T {
        &self.0[level.0]
    }
}

impl<T> Levels<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(&self, level: Level) -> Option<&T> {
        self.0.get(level.0)
    }

    /// The value of `level`. Adds empty levels down to it if there are fewer.
    pub(crate) fn get_or_add(&mut self, level: Level) -> &mut T
    where
        T: Default,
    {
        if self.0.len() <= level.0 {
            self.0.resize_with(level.0 + 1, T::default);
        }
        &mut self.0[level.0]
    }

    /// The values, from level 0 down.
    pub(crate) fn values(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(crate) fn get_mut(&mut self, level: Level) -> Option<&mut T> {
        self.0.get_mut(level.0)
    }

    pub(crate) fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// The levels with their values, from level 0 down.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Level, &T)> + ExactSizeIterator {
        let levels = self.0.iter().enumerate();
        levels.map(|(level, value)| (Level(level), value))
    }

    /// The values of the levels below `level`.
    pub(crate) fn below(&self, level: Level) -> &[T] {
        self.0.get(level.0 + 1..).unwrap_or(&[])
    }

    /// The deepest level; level 0 if there is none.
    pub(crate) fn last(&self) -> Level {
        Level(self.0.len().saturating_sub(1))
    }
}
