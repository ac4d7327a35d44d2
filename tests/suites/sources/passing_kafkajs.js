// Writes each record of NAME-in to NAME-out, in transactions that commit the offsets.
const { Kafka } = require("kafkajs");

const [servers, name] = process.argv.slice(2);
const kafka = new Kafka({ clientId: name, brokers: servers.split(","), retry: { retries: 50, maxRetryTime: 1000 } });

async function main() {
  const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 });
  const consumer = kafka.consumer({ groupId: name, sessionTimeout: 6000, heartbeatInterval: 1000, readUncommitted: false });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [`${name}-in`], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      const transaction = await producer.transaction();
      try {
        const messages = batch.messages.map(({ key, value }) => ({ key, value }));
        await transaction.send({ topic: `${name}-out`, messages });
        const offset = String(BigInt(batch.lastOffset()) + 1n);
        const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }];
        await transaction.sendOffsets({ consumerGroupId: name, topics });
        await transaction.commit();
      } catch (problem) {
        await transaction.abort();
        throw problem;
      }
      resolveOffset(batch.lastOffset());
      await heartbeat();
    },
  });
}

main();
