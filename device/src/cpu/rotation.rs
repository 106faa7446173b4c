//! Cosines and sines of a step's rows, computed once and used by every layer that turns its heads alike.

use crate::Rope;
use ropeteam_kernels::rope::Angles;

/// Kinds of rope in one model that are remembered (local and global layers, say).
const KINDS: usize = 4;

/// The latest angles of each kind of rope.
#[derive(Default)]
pub(super) struct Rotations(Vec<Entry>);

struct Entry {
    rope: Rope,
    positions: Vec<u32>,
    angles: Angles,
}

impl Rotations {
    /// The angles of rows at `positions`.
    pub(super) fn angles(&mut self, rope: &Rope, positions: &[u32]) -> &Angles {
        let known = self.0.iter().position(|entry| entry.rope == *rope);
        let index = known.unwrap_or_else(|| {
            if self.0.len() == KINDS {
                self.0.remove(0);
            }
            let angles = Angles::default();
            self.0.push(Entry {
                rope: rope.clone(),
                positions: Vec::new(),
                angles,
            });
            self.0.len() - 1
        });
        let entry = &mut self.0[index];
        if entry.positions != positions {
            entry.positions.clear();
            entry.positions.extend_from_slice(positions);
            entry.angles.fill(positions, &rope.inv_freq, rope.scale);
        }
        &entry.angles
    }
}
