//! `firn bench retail`: orders with tables, indexes and a life cycle, on several engines.

use super::comparison::Comparison;
use crate::config::Settings;
use crate::exit::Outcome;
use clap::Args;
use firn_bench::{Engines, Retail as Orders};

#[derive(Debug, Args)]
pub(super) struct Retail {
    /// Orders to load. Each writes about 100 KB, of which about 40 KB remain
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    orders: u64,
    /// Minimum transactions after the load: steps of orders, index queries and key queries
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    transactions: u64,
    /// Seed of all contents and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    comparison: Comparison,
}

impl Retail {
    /// `child` holds the arguments with which this program runs a cell.
    pub(super) fn run(self, settings: Settings, engines: &Engines, child: &[&str]) -> Outcome {
        let (orders, seed) = (self.orders, self.seed);
        let (threads, seconds) = (self.comparison.place.threads, self.comparison.place.seconds);
        let config = |durability| {
            Ok(Orders { orders, seed }.config(self.transactions, threads, seconds, durability))
        };
        self.comparison.run(settings, engines, child, config)
    }
}
