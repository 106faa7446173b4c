//! One step of a device: which tokens of which sequences it computes, and what comes back.
//! Made by `device_core`, carried out by a `StepExecutor`.

use crate::ids::{BlockId, SeqId, TokenId};

/// What the next step holds. Buffers are reused from step to step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepPlan {
    /// One entry per sequence, prefill chunks and decodes mixed.
    pub chunks: Vec<Chunk>,
}

impl StepPlan {
    /// Tokens to compute.
    pub fn tokens(&self) -> usize {
        self.chunks.iter().map(|c| c.tokens.len()).sum()
    }
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// The sequence.
    pub seq: SeqId,
    /// The tokens; one when decoding, and guesses of those that follow behind it.
    pub tokens: Vec<TokenId>,
    /// Position of `tokens[0]` in the sequence. Positions before it are in the KV cache already.
    pub start: u32,
    /// The sequence's block table: covers positions `0 .. start + tokens.len()`.
    pub blocks: Vec<BlockId>,
    /// What is wanted from the logits.
    pub want: Want,
}

impl Chunk {
    /// A chunk of nothing, to be filled.
    pub(crate) fn empty() -> Self {
        Chunk {
            seq: SeqId(0),
            tokens: Vec::new(),
            start: 0,
            blocks: Vec::new(),
            want: Want::Nothing,
        }
    }
}

/// What a chunk wants from the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing: the prompt goes on in a later step.
    Nothing,
    /// The id with the highest logit after the last token (lowest id among equals). No logits are copied.
    Argmax,
    /// The logits row after the last token.
    LastLogits,
    /// The logits row after the last token, of which no more is needed than so many of the best columns and what is tied with the last
    /// of them: a device that finds these itself need not bring the others.
    BestLogits(u32),
    /// The best id after every token of the chunk, as for `Argmax`.
    AllArgmax,
    /// The logits rows after every token of the chunk.
    AllLogits,
    /// What the head would be given after every token of the chunk: the last layer's output, normed.
    Hidden,
}

/// What a step brought, in the order of the plan's chunks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    /// One entry per chunk.
    pub results: Vec<ChunkResult>,
    /// Best ids, `None` where no logit is a number; `ChunkResult::BestOfEach` points into it.
    pub best: Vec<Option<TokenId>>,
    /// Logits rows `[rows, vocab]`, row-major, f32; `ChunkResult::Logits` points into it.
    pub logits: Vec<f32>,
    /// The best columns of rows, ids ascending within a row; `ChunkResult::Candidates` points into it.
    pub candidates: Vec<(TokenId, f32)>,
    /// Columns of `logits`. Columns without a token in the tokenizer hold minus infinity.
    pub vocab: usize,
    /// Hidden rows, row-major, f32, all of the model's width; `ChunkResult::Hidden` points into it.
    pub hidden: Vec<f32>,
    /// What it cost the host, where another chip computes.
    pub host: HostCost,
}

/// What a step cost the host; nothing where the host computes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCost {
    /// Operators and graphs that it launched.
    pub launches: u32,
    /// Microseconds that it was at work, waiting for the chip left out.
    pub busy_us: u32,
}

/// What a chunk got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkResult {
    /// It wanted nothing, or wanted the best id where no logit is a number.
    Nothing,
    /// The best id.
    Best(TokenId),
    /// `count` entries of `StepOutput::best` from `first` on.
    BestOfEach {
        /// Index of its first entry.
        first: usize,
        /// How many entries.
        count: usize,
    },
    /// `count` rows of `StepOutput::logits` from `first` on.
    Logits {
        /// Index of its first row.
        first: usize,
        /// How many rows.
        count: usize,
    },
    /// `len` entries of `StepOutput::candidates` from `first` on: what `Want::BestLogits` asks for.
    Candidates {
        /// Index of its first entry.
        first: usize,
        /// How many entries.
        len: usize,
    },
    /// `len` numbers of `StepOutput::hidden` from `first` on: one row per token of the chunk.
    Hidden {
        /// Index of the first number.
        first: usize,
        /// How many numbers.
        len: usize,
    },
}

impl StepOutput {
    /// Empties it for a step with logits rows of `vocab` columns, keeping its room.
    pub fn begin(&mut self, vocab: usize) {
        self.results.clear();
        self.best.clear();
        self.logits.clear();
        self.candidates.clear();
        self.hidden.clear();
        self.host = HostCost::default();
        self.vocab = vocab;
    }

    /// The `index`-th logits row, `[vocab]`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.logits[index * self.vocab..(index + 1) * self.vocab]
    }
}
