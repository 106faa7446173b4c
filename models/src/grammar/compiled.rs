//! A compiled grammar, and the state of one sequence in it: its parser is here while the mask is known and with the mask threads while the
//! next one is made.

use super::masks::MaskThreads;
use super::{GrammarError, GrammarSpec, first_lines};
use llguidance::{Matcher, TokenParser};
use ropeteam_engine::constraint::{Constraint, ConstraintFailed, ConstraintState, TokenMask};
use ropeteam_engine::ids::TokenId;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// A grammar at its beginning. Sequences work on copies that share nothing, so that none can fill up what another one needs.
pub(super) struct Compiled {
    beginning: Arc<Mutex<Matcher>>,
    first_mask: TokenMask,
    masks: MaskThreads,
    /// What it was made of.
    source: Arc<str>,
}

impl Compiled {
    /// Of a fresh parser for `spec`.
    ///
    /// # Errors
    /// When nothing can be generated with it.
    pub fn new(
        spec: &GrammarSpec,
        parser: TokenParser,
        masks: MaskThreads,
    ) -> Result<Self, GrammarError> {
        let mut matcher = Matcher::new(Ok(parser));
        let first_mask = next_mask(&mut matcher, &[]).map_err(|why| {
            GrammarError::Invalid(format!("no text satisfies it ({})", first_lines(&why)))
        })?;
        Ok(Compiled {
            beginning: Arc::new(Mutex::new(matcher)),
            first_mask,
            masks,
            source: spec.source().into(),
        })
    }
}

impl Constraint for Compiled {
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
        let (send, made) = sync_channel(1);
        let beginning = self.beginning.clone();
        let first_mask = self.first_mask.clone();
        let output: Vec<u32> = output.iter().map(|id| id.0).collect();
        self.masks.run(move || {
            let beginning = beginning.lock().unwrap_or_else(PoisonError::into_inner);
            let mut matcher = beginning.deep_clone();
            drop(beginning);
            let mask = match output.as_slice() {
                [] => Ok(first_mask),
                output => told(next_mask(&mut matcher, output)),
            };
            hand_over(&send, matcher, mask);
        });
        Box::new(State {
            progress: Progress::Waiting(made),
            masks: self.masks.clone(),
        })
    }

    fn source(&self) -> Option<Arc<str>> {
        Some(self.source.clone())
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

/// A sequence's parser and what may come next.
struct Made {
    matcher: Matcher,
    mask: Result<TokenMask, ConstraintFailed>,
}

enum Progress {
    /// The mask threads have it.
    Waiting(Receiver<Made>),
    /// It is here.
    Made(Box<Made>),
    /// It got lost in a panic.
    Lost,
}

struct State {
    progress: Progress,
    masks: MaskThreads,
}

impl State {
    /// Waits until the parser is here.
    fn settle(&mut self) {
        if let Progress::Waiting(made) = &self.progress {
            self.progress = match made.recv() {
                Ok(made) => Progress::Made(Box::new(made)),
                Err(_) => Progress::Lost,
            };
        }
    }
}

impl ConstraintState for State {
    fn push(&mut self, id: TokenId) {
        self.settle();
        let Progress::Made(made) = std::mem::replace(&mut self.progress, Progress::Lost) else {
            return;
        };
        let mut matcher = made.matcher;
        let (send, made) = sync_channel(1);
        self.progress = Progress::Waiting(made);
        self.masks.run(move || {
            let mask = told(next_mask(&mut matcher, &[id.0]));
            hand_over(&send, matcher, mask);
        });
    }

    fn is_ready(&mut self) -> bool {
        if let Progress::Waiting(made) = &self.progress {
            self.progress = match made.try_recv() {
                Ok(made) => Progress::Made(Box::new(made)),
                Err(TryRecvError::Disconnected) => Progress::Lost,
                Err(TryRecvError::Empty) => return false,
            };
        }
        true
    }

    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
        self.settle();
        match &self.progress {
            Progress::Made(made) => made.mask.clone(),
            Progress::Waiting(_) | Progress::Lost => Err(ConstraintFailed),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.progress {
            Progress::Waiting(_) => "Waiting",
            Progress::Made(_) => "Made",
            Progress::Lost => "Lost",
        })
    }
}

/// Takes `tokens` and tells what may follow; only end ids where the text is complete and nothing can.
fn next_mask(matcher: &mut Matcher, tokens: &[u32]) -> Result<TokenMask, String> {
    let taken = matcher.consume_tokens(tokens);
    let mask = taken.and_then(|()| matcher.compute_mask_or_eos());
    let mask = mask.map_err(|error| error.to_string())?;
    Ok(TokenMask::from_words(mask.into()))
}

fn told(mask: Result<TokenMask, String>) -> Result<TokenMask, ConstraintFailed> {
    mask.map_err(|why| {
        tracing::warn!(why = first_lines(&why), "a constraint cannot be followed");
        ConstraintFailed
    })
}

/// The sequence may be gone; then nobody wants it.
fn hand_over(send: &SyncSender<Made>, matcher: Matcher, mask: Result<TokenMask, ConstraintFailed>) {
    let _ = send.send(Made { matcher, mask });
}
