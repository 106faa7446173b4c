//! Panels side by side in memory.

use crate::aligned::Line;

/// Neighbouring panels whose lines take turns: the first line of each, then the second of each. A register tile that reads them
/// together goes through memory from one end to the other, which is what the processor's own look-ahead is made for.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    /// All lines of all its panels.
    lines: &'a [Line],
    /// How many panels it has.
    width: usize,
    /// The panel that is meant by number 0.
    first: usize,
}

impl<'a> Strip<'a> {
    /// The lines of `width` panels, seen from panel `first` on.
    ///
    /// # Panics
    /// When there is no such panel, or the lines are no whole panels.
    #[inline(always)]
    pub(crate) fn new(lines: &'a [Line], width: usize, first: usize) -> Self {
        assert!(
            first < width && lines.len().is_multiple_of(width),
            "panels of a strip"
        );
        Self {
            lines,
            width,
            first,
        }
    }

    /// Lines per panel.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.lines.len() / self.width
    }

    /// The lines `start .. end` of each panel.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline(always)]
    pub(crate) fn part(&self, start: usize, end: usize) -> Self {
        Self {
            lines: &self.lines[start * self.width..end * self.width],
            ..*self
        }
    }

    /// # Panics
    /// Unless there are `panels` panels.
    #[inline(always)]
    pub(crate) fn check(&self, panels: usize) {
        assert!(self.first + panels <= self.width, "panels of a tile");
    }

    /// Line `at` of a panel.
    ///
    /// # Safety
    /// The panel is among those of `check`, and `at` is less than `len`.
    #[inline(always)]
    pub(crate) unsafe fn line(&self, panel: usize, at: usize) -> &'a Line {
        let index = at * self.width + self.first + panel;
        debug_assert!(index < self.lines.len());
        // SAFETY: the caller's promise.
        unsafe { self.lines.get_unchecked(index) }
    }

    /// The lines of panel 0 in their order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a Line> + use<'a> {
        self.lines[self.first..].iter().step_by(self.width)
    }

    /// The lines of panel 0 that belong to its unit of N lines number `unit`.
    ///
    /// # Panics
    /// When there is no such unit.
    pub(crate) fn unit<const N: usize>(&self, unit: usize) -> [&'a Line; N] {
        let line = |i: usize| &self.lines[(unit * N + i) * self.width + self.first];
        std::array::from_fn(line)
    }
}
