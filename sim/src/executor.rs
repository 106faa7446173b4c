//! A device without weights. What it "computes" is a pure function of the sequence's tokens, and it keeps that function's
//! state in the slots of the KV blocks it is told to use: a wrong block table, a lost block or a replay with one token
//! missing shows as different tokens.

use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind, StepExecutor};
use ropeteam_engine::ids::{BlockId, TokenId};
use ropeteam_engine::plan::{Chunk, ChunkResult, StepOutput, StepPlan, Want};

/// Width of its hidden states.
pub const HIDDEN: u32 = 16;

/// A `StepExecutor` whose model is a hash chain over the tokens. Takes no time: wrap it in
/// [`DelayedExecutor`](crate::faults::DelayedExecutor), or let the virtual clock wait.
pub struct SimExecutor {
    capacity: Capacity,
    seed: u64,
    /// Per slot of the pool the chain's state after its token: `[blocks * block_size]`.
    slots: Vec<u64>,
}

impl SimExecutor {
    /// A device of that capacity; devices with the same `seed` are the same model.
    pub fn new(capacity: Capacity, seed: u64) -> Self {
        let slots = vec![0; capacity.blocks as usize * capacity.block_size as usize];
        SimExecutor {
            capacity,
            seed,
            slots,
        }
    }

    fn slot(&self, blocks: &[BlockId], position: usize) -> Result<usize, DeviceFault> {
        let size = self.capacity.block_size as usize;
        let block = blocks
            .get(position / size)
            .filter(|b| b.0 < self.capacity.blocks);
        match block {
            Some(block) => Ok(block.0 as usize * size + position % size),
            None => Err(broken_plan(format!("no block for position {position}"))),
        }
    }

    fn run_chunk(&mut self, chunk: &Chunk, output: &mut StepOutput) -> Result<(), DeviceFault> {
        let first_row = output.logits.len() / output.vocab;
        let first_best = output.best.len();
        let first_hidden = output.hidden.len();
        let mut state = match chunk.start {
            0 => self.seed,
            start => self.slots[self.slot(&chunk.blocks, start as usize - 1)?],
        };
        for (i, &token) in chunk.tokens.iter().enumerate() {
            if token.0 >= self.capacity.vocab {
                return Err(broken_plan(format!(
                    "token {token} is outside the vocabulary"
                )));
            }
            state = mix(state ^ (u64::from(token.0) + 1));
            let slot = self.slot(&chunk.blocks, chunk.start as usize + i)?;
            self.slots[slot] = state;
            match chunk.want {
                Want::AllLogits => push_row(state, output),
                Want::AllArgmax => output.best.push(Some(best(state, self.capacity.vocab))),
                Want::Hidden => output.hidden.extend((0..HIDDEN).map(|i| logit(state, i))),
                Want::Nothing | Want::Argmax | Want::LastLogits | Want::BestLogits(_) => {}
            }
        }
        let result = match chunk.want {
            Want::Nothing => ChunkResult::Nothing,
            Want::Argmax => ChunkResult::Best(best(state, self.capacity.vocab)),
            Want::LastLogits | Want::BestLogits(_) => {
                push_row(state, output);
                ChunkResult::Logits {
                    first: first_row,
                    count: 1,
                }
            }
            Want::AllArgmax => ChunkResult::BestOfEach {
                first: first_best,
                count: chunk.tokens.len(),
            },
            Want::Hidden => ChunkResult::Hidden {
                first: first_hidden,
                len: output.hidden.len() - first_hidden,
            },
            Want::AllLogits => ChunkResult::Logits {
                first: first_row,
                count: chunk.tokens.len(),
            },
        };
        output.results.push(result);
        Ok(())
    }
}

impl StepExecutor for SimExecutor {
    fn capacity(&self) -> Capacity {
        self.capacity.clone()
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        output.begin(self.capacity.vocab as usize);
        if plan.tokens() > self.capacity.max_step_tokens as usize {
            return Err(broken_plan(format!("{} tokens in one step", plan.tokens())));
        }
        for chunk in &plan.chunks {
            self.run_chunk(chunk, output)?;
        }
        Ok(())
    }
}

fn broken_plan(detail: String) -> DeviceFault {
    DeviceFault {
        kind: FaultKind::Operator,
        detail,
    }
}

/// Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Logit of `token` in that state, in `-4.0 .. 4.0`.
fn logit(state: u64, token: u32) -> f32 {
    let bits = mix(state.wrapping_add(u64::from(token).wrapping_mul(0x2545_f491_4f6c_dd1d)));
    (bits >> 40) as f32 / (1u32 << 21) as f32 - 4.0
}

fn push_row(state: u64, output: &mut StepOutput) {
    let vocab = output.vocab as u32;
    output
        .logits
        .extend((0..vocab).map(|token| logit(state, token)));
}

fn best(state: u64, vocab: u32) -> TokenId {
    let mut best = (0, logit(state, 0));
    for token in 1..vocab {
        let value = logit(state, token);
        if value > best.1 {
            best = (token, value);
        }
    }
    TokenId(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::ids::SeqId;

    fn capacity() -> Capacity {
        Capacity {
            blocks: 8,
            block_size: 4,
            max_model_len: 32,
            max_step_tokens: 64,
            max_logits_rows: 64,
            vocab: 50,
        }
    }

    fn chunk(tokens: &[u32], start: u32, blocks: &[u32], want: Want) -> Chunk {
        Chunk {
            seq: SeqId(1),
            tokens: tokens.iter().map(|&t| TokenId(t)).collect(),
            start,
            blocks: blocks.iter().map(|&b| BlockId(b)).collect(),
            want,
        }
    }

    fn run(device: &mut SimExecutor, chunk: Chunk) -> (ChunkResult, StepOutput) {
        let mut output = StepOutput::default();
        device
            .step(
                &StepPlan {
                    chunks: vec![chunk],
                },
                &mut output,
            )
            .unwrap();
        (output.results[0], output)
    }

    #[test]
    fn the_result_does_not_depend_on_chunks_or_blocks() {
        let mut whole = SimExecutor::new(capacity(), 9);
        let (a, _) = run(
            &mut whole,
            chunk(&[1, 2, 3, 4, 5, 6], 0, &[0, 1], Want::Argmax),
        );
        let mut cut = SimExecutor::new(capacity(), 9);
        run(&mut cut, chunk(&[1, 2, 3], 0, &[5, 2], Want::Nothing));
        let (b, _) = run(&mut cut, chunk(&[4, 5, 6], 3, &[5, 2], Want::Argmax));
        assert_eq!(a, b);
    }

    #[test]
    fn a_wrong_block_table_shows() {
        let mut device = SimExecutor::new(capacity(), 9);
        run(&mut device, chunk(&[1, 2, 3], 0, &[5, 2], Want::Nothing));
        let (right, _) = run(&mut device, chunk(&[4], 3, &[5, 2], Want::Argmax));
        let (wrong, _) = run(&mut device, chunk(&[4], 3, &[6, 2], Want::Argmax));
        assert_ne!(right, wrong);
    }

    #[test]
    fn argmax_is_the_best_of_the_row() {
        let mut device = SimExecutor::new(capacity(), 3);
        let (best, _) = run(&mut device, chunk(&[7, 8], 0, &[0], Want::Argmax));
        let (_, output) = run(&mut device, chunk(&[7, 8], 0, &[0], Want::AllLogits));
        let row = output.row(1);
        let top = (0..row.len())
            .max_by(|&a, &b| row[a].total_cmp(&row[b]))
            .unwrap();
        assert_eq!(best, ChunkResult::Best(TokenId(top as u32)));
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_is_a_fault() {
        let mut device = SimExecutor::new(capacity(), 3);
        let mut output = StepOutput::default();
        let plan = StepPlan {
            chunks: vec![chunk(&[1, 2, 3, 4, 5], 0, &[0], Want::Argmax)],
        };
        assert!(device.step(&plan, &mut output).is_err());
    }
}
