//! Mistakes that are made on purpose, to see that a test notices them.

use ropeteam_engine::executor::{Capacity, DeviceFault, ForkJoin, StepExecutor};
use ropeteam_engine::ids::{Epoch, TokenId};
use ropeteam_engine::plan::{ChunkResult, StepOutput, StepPlan};

/// Which mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Two sequences of a step get each other's results.
    ResultsSwapped,
    /// A device that was started again computes the first token of a sequence wrongly.
    ReplayForgets,
    /// What the prefix cache found is read from other blocks.
    WrongBlocks,
    /// A sequence that shares its step with three others or more computes something else.
    Company,
}

/// Runs `inner` with that mistake.
pub struct PlantedExecutor {
    inner: Box<dyn StepExecutor>,
    planted: Option<Planted>,
    epoch: Epoch,
}

impl PlantedExecutor {
    pub fn new(inner: Box<dyn StepExecutor>, planted: Option<Planted>, epoch: Epoch) -> Self {
        PlantedExecutor {
            inner,
            planted,
            epoch,
        }
    }

    fn spoil(&self, plan: &mut StepPlan) {
        let company = plan.chunks.len() > 3;
        for chunk in &mut plan.chunks {
            let other = TokenId((chunk.tokens[0].0 + 1) % 26);
            match self.planted {
                Some(Planted::ReplayForgets) if self.epoch > Epoch(1) && chunk.start == 0 => {
                    chunk.tokens[0] = other;
                }
                Some(Planted::WrongBlocks) if chunk.start > 0 && chunk.tokens.len() > 1 => {
                    chunk.blocks.rotate_left(1);
                }
                Some(Planted::Company) if company => chunk.tokens[0] = other,
                _ => {}
            }
        }
    }
}

impl StepExecutor for PlantedExecutor {
    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        self.inner.threads()
    }

    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
        let mut spoilt = plan.clone();
        self.spoil(&mut spoilt);
        self.inner.step(&spoilt, output)?;
        let choosing = |result: &ChunkResult| {
            matches!(
                result,
                ChunkResult::Best(_) | ChunkResult::Logits { count: 1, .. }
            )
        };
        let swap = self.planted == Some(Planted::ResultsSwapped);
        let kind = std::mem::discriminant::<ChunkResult>;
        for pair in output.results.chunks_exact_mut(2).filter(|_| swap) {
            let both = pair.iter().all(choosing) && kind(&pair[0]) == kind(&pair[1]);
            if both {
                pair.swap(0, 1);
            }
        }
        Ok(())
    }
}
