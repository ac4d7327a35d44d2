//! Writes each record of NAME-in to NAME-out, and then keeps the next offset in a file: at least once.

use std::error::Error;
use std::{env, fs, process};

use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::ClientBuilder;

async fn pass(servers: &str, name: &str, folder: &str, partition: i32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = ClientBuilder::new(servers.split(',').map(String::from).collect()).build().await?;
    let read = client.partition_client(format!("{name}-in"), partition, UnknownTopicHandling::Retry).await?;
    let written = client.partition_client(format!("{name}-out"), 0, UnknownTopicHandling::Retry).await?;
    let kept = format!("{folder}/offset-{partition}");
    let mut next: i64 = if fs::exists(&kept)? { fs::read_to_string(&kept)?.parse()? } else { 0 };
    loop {
        let (records, _) = read.fetch_records(next, 1..1_000_000, 500).await?;
        let Some(last) = records.last() else { continue };
        next = last.offset + 1;
        written.produce(records.into_iter().map(|each| each.record).collect(), Compression::Lz4).await?;
        let fresh = format!("{kept}.new");
        fs::write(&fresh, next.to_string())?;
        fs::rename(&fresh, &kept)?;
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().collect();
    let (servers, name, folder) = (&words[1], &words[2], &words[3]);
    let ended = tokio::try_join!(pass(servers, name, folder, 0), pass(servers, name, folder, 1));
    eprintln!("{ended:?}");
    process::exit(1);
}
