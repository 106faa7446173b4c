//! A constraint whose masks depend on all tokens before, and are often late.

use ropeteam_engine::constraint::{Constraint, ConstraintFailed, ConstraintState, TokenMask};
use ropeteam_engine::ids::TokenId;
use std::sync::Arc;

/// Allows two letters, which follow from the output so far, or the end.
#[derive(Debug)]
pub(super) struct Winding;

#[derive(Debug)]
struct State {
    hash: u32,
    /// How often it will be asked in vain whether the mask is there.
    late: u32,
}

impl Constraint for Winding {
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
        let mut state = State { hash: 1, late: 0 };
        output.iter().for_each(|&id| state.push(id));
        Box::new(state)
    }

    fn source(&self) -> Option<Arc<str>> {
        None
    }
}

impl ConstraintState for State {
    fn push(&mut self, id: TokenId) {
        self.hash = self.hash.wrapping_mul(31).wrapping_add(id.0);
        self.late = self.hash % 4;
    }

    fn is_ready(&mut self) -> bool {
        self.late = self.late.saturating_sub(1);
        self.late == 0
    }

    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
        let first = self.hash % 26 + 1;
        let letters = [first, first % 26 + 1, self.hash % 5];
        Ok(TokenMask::of(&letters.map(TokenId)))
    }
}
