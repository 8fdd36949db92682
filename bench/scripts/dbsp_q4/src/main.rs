//! Nexmark's query 4 with feldera's DBSP: the mean winning price of each category of auctions.
//!
//!     dbsp_q4 BOOTSTRAP ENDS_JSON OUT_FILE
//!
//! The program reads the topics `auction` and `bid` from offset zero up to the given ends
//! (`{"topic": {"partition": end}}`). It feeds DBSP in steps, with a worker per core. DBSP keeps
//! the answer incrementally. After each step, the program replaces OUT_FILE with the answer's rows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::process;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dbsp::circuit::CircuitConfig;
use dbsp::mimalloc::MiMalloc;
use dbsp::operator::Max;
use dbsp::typed_batch::SpineSnapshot;
use dbsp::utils::{Tup2, Tup3};
use dbsp::{
    IndexedZSetHandle, IndexedZSetReader, OrdIndexedZSet, OutputHandle, RootCircuit, Runtime,
    ZWeight,
};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::Deserialize;

// The allocator that DBSP's own benchmarks use.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const RECORDS_OF_A_STEP: usize = 250_000;
const PATIENCE: Duration = Duration::from_secs(60);
// As in consume.c.
const CONSUMER: [(&str, &str); 6] = [
    ("group.id", "dbsp_q4"),
    ("enable.auto.commit", "false"),
    ("auto.offset.reset", "error"),
    ("fetch.message.max.bytes", "16777216"),
    ("queued.min.messages", "500000"),
    ("queued.max.messages.kbytes", "262144"),
];

/// The end of each partition, by topic.
type Ends = BTreeMap<String, BTreeMap<i32, i64>>;
/// The category of an auction, and the times in milliseconds at which it opens and expires.
type Terms = Tup3<i64, i64, i64>;
/// The price of a bid, and its time in milliseconds.
type Offer = Tup2<i64, i64>;
/// Values by the id of an auction, each with its weight.
type ByAuction<V> = Vec<Tup2<i64, Tup2<V, ZWeight>>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Auction {
    id: i64,
    category: i64,
    date_time: i64,
    expires: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bid {
    auction: i64,
    price: i64,
    date_time: i64,
}

/// The records of one step.
#[derive(Default)]
struct Batch {
    auctions: ByAuction<Terms>,
    bids: ByAuction<Offer>,
}

impl Batch {
    fn len(&self) -> usize {
        self.auctions.len() + self.bids.len()
    }

    /// Decodes a record and adds it with weight 1.
    fn add(&mut self, topic: &str, value: &[u8]) -> Result<()> {
        match topic {
            "auction" => {
                let Auction {
                    id,
                    category,
                    date_time,
                    expires,
                } = serde_json::from_slice(value)?;
                self.auctions
                    .push(Tup2(id, Tup2(Tup3(category, date_time, expires), 1)));
            }
            "bid" => {
                let Bid {
                    auction,
                    price,
                    date_time,
                } = serde_json::from_slice(value)?;
                self.bids
                    .push(Tup2(auction, Tup2(Tup2(price, date_time), 1)));
            }
            _ => bail!("query 4 does not read the topic {topic}"),
        }
        Ok(())
    }
}

/// What goes into the circuit, and the changes of the answer that come out of it.
struct Handles {
    auctions: IndexedZSetHandle<i64, Terms>,
    bids: IndexedZSetHandle<i64, Offer>,
    means: OutputHandle<SpineSnapshot<OrdIndexedZSet<i64, i64>>>,
}

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, ends, out] = given.as_slice() else {
        bail!("dbsp_q4 BOOTSTRAP ENDS_JSON OUT_FILE");
    };
    let ends: Ends = serde_json::from_str(ends).context("ENDS_JSON")?;
    let (records, seconds) = answer(read(bootstrap.clone(), ends), Path::new(out))?;
    println!("seconds of the steps: {}", seconds.join(" "));
    println!("records {records}");
    // Nothing is left to close: the answer is written.
    process::exit(0);
}

/// Returns the batches of all records before the ends. A thread reads one batch ahead.
fn read(bootstrap: String, ends: Ends) -> Receiver<Result<Batch>> {
    let (batches, received) = sync_channel(1);
    thread::spawn(move || {
        if let Err(error) = send_batches(&bootstrap, &ends, &batches) {
            // Nobody listens any more if the main thread has failed.
            let _ = batches.send(Err(error));
        }
    });
    received
}

fn send_batches(bootstrap: &str, ends: &Ends, batches: &SyncSender<Result<Batch>>) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (name, value) in CONSUMER {
        config.set(name, value);
    }
    let consumer: BaseConsumer = config.create()?;
    let mut begin = TopicPartitionList::new();
    let mut partitions_left = 0;
    for (topic, partitions) in ends {
        for (&partition, _) in partitions.iter().filter(|&(_, &end)| end > 0) {
            begin.add_partition_offset(topic, partition, Offset::Offset(0))?;
            partitions_left += 1;
        }
    }
    consumer.assign(&begin)?;
    let mut batch = Batch::default();
    while partitions_left > 0 {
        let Some(message) = consumer.poll(PATIENCE) else {
            bail!("nothing came for {} seconds", PATIENCE.as_secs());
        };
        let message = message?;
        let end = ends[message.topic()][&message.partition()];
        if message.offset() >= end {
            continue;
        }
        batch.add(message.topic(), message.payload().unwrap_or_default())?;
        if message.offset() + 1 == end {
            partitions_left -= 1;
        }
        if batch.len() >= RECORDS_OF_A_STEP {
            batches.send(Ok(std::mem::take(&mut batch)))?;
        }
    }
    if batch.len() > 0 {
        batches.send(Ok(batch))?;
    }
    Ok(())
}

/// Feeds all batches, and commits the answer after each. Returns the number of records, and the
/// seconds of each step.
fn answer(batches: Receiver<Result<Batch>>, out: &Path) -> Result<(usize, Vec<String>)> {
    let workers = thread::available_parallelism()?.get();
    // The input of a step is complete before the step begins.
    let config = CircuitConfig::with_workers(workers).with_allow_input_during_commit(false);
    let (mut dbsp, handles) = Runtime::init_circuit(config, circuit)?;
    let (mut means, mut records, mut seconds) = (BTreeMap::new(), 0, Vec::new());
    for batch in batches {
        let (mut batch, begun) = (batch?, Instant::now());
        records += batch.len();
        handles.auctions.append(&mut batch.auctions);
        handles.bids.append(&mut batch.bids);
        dbsp.transaction()?;
        apply(&handles, &mut means);
        commit(&means, out)?;
        seconds.push(format!("{:.2}", begun.elapsed().as_secs_f64()));
    }
    Ok((records, seconds))
}

/// Builds query 4, with the semantics of `q4` in tests/nexmark/auction_oracle.py.
///
/// Of the bids from an auction's opening to its expiry, both included, the highest price wins. So
/// ties do not matter. An auction without such a bid does not count.
fn circuit(circuit: &mut RootCircuit) -> Result<Handles> {
    let (auctions, auctions_in) = circuit.add_input_indexed_zset::<i64, Terms>();
    let (bids, bids_in) = circuit.add_input_indexed_zset::<i64, Offer>();
    let winning = auctions
        .join_index(
            &bids,
            |&auction, &Tup3(category, opens, expires), &Tup2(price, at)| {
                (opens <= at && at <= expires).then_some((Tup2(auction, category), price))
            },
        )
        .aggregate(Max);
    // The sum divided by the count, without the fraction: prices are positive integers.
    let means = winning
        .map_index(|(Tup2(_, category), price)| (*category, *price))
        .average(|price| *price);
    Ok(Handles {
        auctions: auctions_in,
        bids: bids_in,
        means: means.accumulate_output(),
    })
}

/// Applies the changes of the last step to the answer: first what goes, then what comes.
fn apply(handles: &Handles, means: &mut BTreeMap<i64, i64>) {
    let changes = handles.means.concat().consolidate();
    for (category, _, _) in changes.iter().filter(|&(_, _, weight)| weight < 0) {
        means.remove(&category);
    }
    means.extend(
        changes
            .iter()
            .filter(|&(_, _, weight)| weight > 0)
            .map(|(category, mean, _)| (category, mean)),
    );
}

/// Replaces the file with these rows, atomically.
fn commit(means: &BTreeMap<i64, i64>, out: &Path) -> Result<(), io::Error> {
    let mut rows = String::from("id,final\n");
    for (category, mean) in means {
        writeln!(rows, "{category},{mean}").expect("a String takes all text");
    }
    let written = out.with_extension("new");
    fs::write(&written, rows)?;
    fs::rename(&written, out)
}
